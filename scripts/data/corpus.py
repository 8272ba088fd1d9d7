"""Data sets by name: corpora of texts, alone, each with a label, or each with a target text; recordings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from qkv.scripts.data.examples import Record
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.splits.division import TEST_EVERY, divide_evenly
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.validation import RecordValidation
from qkv.scripts.recipes.schema import Recipe

Item = TypeVar("Item")
Splits = dict[str, list[Item]]
# Makes examples of texts, a list for each.
Prepare = Callable[[Sequence[str]], list[list[Record]]]
# Generates a text for each prompt.
Generate = Callable[[Sequence[str]], list[str]]
# The report of data that are streamed.
STREAMED: dict[str, Any] = {"split": "a stream, whose rows are not compared with each other", "leaked": {}}


@dataclass(frozen=True)
class DataSet:
    """A data set under the names that records and cards have for it, and its records that were skipped.

    Of own data `report` says how they were split, the classes of each split, and the rows that two splits share; `read`
    says which columns and files were read, and what was left out.
    """

    name: str
    title: str
    source: str
    invalid_records: RecordValidation = field(default_factory=RecordValidation, kw_only=True, compare=False)
    report: dict[str, Any] = field(default_factory=dict, kw_only=True, compare=False)
    read: ReadReport = field(default_factory=ReadReport, kw_only=True, compare=False)


@dataclass(frozen=True)
class SpeechData(DataSet):
    """Recordings and their transcriptions at `where`, a file, folder or data set of the Hub."""

    where: str


@dataclass(frozen=True)
class Corpus(DataSet):
    """Texts in splits, `train` and `test` among them, the same ones every time.

    A text is one document. `labels` has the number of its class in `names`, `numbers` the number to be predicted,
    `targets` the text to be written from it, `pairs` a second text that is read with it, `tasks` the name of its task,
    which is its prefix, too.
    With a `stream` (prepare, length) there are texts for validation at most, and it makes the examples of all others.
    """

    texts: Splits[Any]
    labels: Splits[Any] = field(default_factory=dict)
    names: Sequence[str] = ()
    targets: Splits[str] = field(default_factory=dict)
    pairs: Splits[str] = field(default_factory=dict)
    numbers: Splits[float] = field(default_factory=dict)
    tasks: Splits[str] = field(default_factory=dict)
    stream: Callable[[Prepare, int | None], Stream] | None = None

    def divided(self, recipe: Recipe) -> Self:
        """Divide example data into the splits that the recipe asks for."""
        division: Any = divide_evenly({name: len(texts) for name, texts in self.texts.items()}, recipe)
        columns = {"texts": self.texts, "labels": self.labels, "targets": self.targets}
        columns |= {"pairs": self.pairs, "tasks": self.tasks}
        return replace(self, **{name: division.of_lists(splits) for name, splits in columns.items()})


@dataclass(frozen=True)
class PromptedCorpus:
    """A corpus whose targets are grids of tokens, such as images and tunes, that a decoder generates after a prompt.

    A target has rows of `columns` tokens, each a `unit` for metrics in bits. `score` (prompts, generated texts) gives
    metrics, `products` (generate, folder) leaves pictures or sound in a run's folder and returns {file: caption}, and
    `usage` is a program for the card, with `model=...` for the published model.
    """

    corpus: Corpus
    unit: str
    columns: int
    score: Callable[[Sequence[str], Sequence[str]], dict[str, float]]
    products: Callable[[Generate, Path], dict[str, str]]
    usage: str


def prefixed(task: str, text: str) -> str:
    """Return a text behind the name of its task, as T5 reads them."""
    return f"{task.strip().removesuffix(':')}: {text}"


def paired(name: str, title: str, source: str, pairs: Sequence[tuple[str, str]]) -> Corpus:
    """Make a corpus of texts and their targets, every tenth pair for the test."""
    train = [pair for index, pair in enumerate(pairs) if index % TEST_EVERY]
    splits = {"train": train, "test": list(pairs[::TEST_EVERY])}
    texts = {split: [text for text, _ in part] for split, part in splits.items()}
    return Corpus(name, title, source, texts, targets={s: [target for _, target in p] for s, p in splits.items()})
