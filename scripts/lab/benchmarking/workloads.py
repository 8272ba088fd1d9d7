"""The workloads: a model, a seeded batch, and what one step of it is."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from qkv.scripts.common.files import table
from qkv.scripts.common.words import nearest

Step = Literal["train", "encode", "generate", "load", "load again"]
STEPS = {
    "train": "forward, backward and a fused AdamW step",
    "encode": "forward without gradients",
    "generate": "all new tokens of a batch",
    "load": "a new process: from its start to a model read from a folder",
    "load again": "the same process: from a folder to a second model",
}


@dataclass(frozen=True)
class Shape:
    """A model: the official class, its config, and what it reads, a row of READS in batches.py."""

    official: str
    reads: str
    config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """A model and one step on a batch; `real` and `target_real` are the shares of tokens that are no padding.

    `device` is the kind that the batch is for; `dtype`, where there is one, stands above the option of the command.
    """

    name: str
    model: Shape
    step: Step
    batch: int = 1
    length: int = 0
    real: float = 1.0
    target_length: int = 0
    target_real: float = 1.0
    new_tokens: int = 0
    beams: int = 1
    device: str = "cpu"
    dtype: str = ""

    @property
    def sizes(self) -> dict[str, Any]:
        """Everything that differs from the default, for the record."""
        return {name: value for name, value in asdict(self).items() if name != "name" and value}


def read_workloads() -> dict[str, Workload]:
    """Return all workloads by name."""
    rows = table(__file__)
    models = {name: Shape(**fields) for name, fields in rows["models"].items()}
    return {
        name: Workload(name, models[fields["model"]], **{key: fields[key] for key in fields if key != "model"})
        for name, fields in rows["workloads"].items()
    }


def chosen(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names that the words mean, in their order: all of them where there is no word.

    A word is a name, a pattern such as `decode-*`, or how names begin. ValueError for any other.
    """
    meant = {word: [name for name in known if means(word, name, known)] for word in words}
    for word, matches in meant.items():
        if not matches:
            close = nearest(word, [*known, *(beginning for name in known for beginning in beginnings(name))])
            advice = f"did you mean {close!r}?" if close else "python -m qkv.scripts.lab benchmark --list names them"
            raise ValueError(f"there is no workload {word!r}; {advice}")
    return [name for name in known if not words or any(name in matches for matches in meant.values())]


def beginnings(name: str) -> Iterator[str]:
    """Yield how a name begins, up to each of its hyphens."""
    parts = name.split("-")
    return ("-".join(parts[:count]) for count in range(1, len(parts)))


def means(word: str, name: str, known: Sequence[str]) -> bool:
    """Tell whether a word means a workload: a name means itself alone."""
    return name == word if word in known else fnmatchcase(name, word) or name.startswith(f"{word}-")
