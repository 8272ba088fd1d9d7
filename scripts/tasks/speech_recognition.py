"""What was said? Recordings and their texts: written down by a decoder, or labelled moment by moment (CTC)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, List, Value
from torch.nn.utils.rnn import pad_sequence
from transformers import Speech2TextFeatureExtractor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.loading import called, read, select, splits
from qkv.scripts.data.text_columns import address, divided
from qkv.scripts.data.validation import Complaints, recorded, sift, sound, text
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.seq2seq import measured
from qkv.scripts.tasks.task import Batch, Example, Record, Task
from qkv.scripts.tasks.transcription import Reading, reading_of
from qkv.scripts.training.evaluation import model_inputs

METRICS = ("wer", "exact_match")
# What a column of recordings is called: on the Hub, and in the table of a folder of sound.
COLUMNS = ("audio", "file_name")


@dataclass(frozen=True)
class Source:
    """Where recordings are, and what they are called where others read."""

    where: str
    name: str
    title: str
    home: str


@dataclass(frozen=True)
class Heard:
    """What a model hears: features worked out once, the text, and the number of it among those of all splits."""

    table: Dataset
    first: int

    def __len__(self) -> int:
        return len(self.table)

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        found = self.table.with_format("numpy", ["features"], output_all_columns=True)[list(indices)]
        numbers = [self.first + index for index in indices]
        columns = (found["features"], found["text"], numbers)
        return [{"features": row, "text": said, "_target": number} for row, said, number in zip(*columns, strict=True)]

    @property
    def lengths(self) -> list[int]:
        """Frames of each."""
        return list(self.table["length"])

    @property
    def texts(self) -> list[str]:
        """What is said in each."""
        return list(self.table["text"])

    def contents(self) -> Iterator[bytes]:
        """Recordings by their files and texts: the last bits of features are another machine's own."""
        for name in ("identity", "text"):
            yield "\n".join(self.table[name]).encode()


@dataclass(frozen=True)
class Processor:
    """What makes features of sound, and texts of tokens: a folder of a model holds both."""

    parts: tuple[Any, ...]

    def save_pretrained(self, folder: Path) -> None:
        """Write both."""
        for part in self.parts:
            part.save_pretrained(folder)


def given(recipe: Recipe) -> Source:
    """Recordings of files, folders and the Hub."""
    return Source(recipe.data, called(recipe.data), called(recipe.data), address(recipe))


def speech(recipe: Recipe, find: Callable[[Recipe], Source] = given) -> Task:
    """Recordings and texts of `data=`; ValueError where a column is missing, or too many records are bad.

    Features are worked out once and kept in datasets' cache. Where there is no test split every tenth record is for it,
    and WER is of what the model writes by itself.
    """
    kind, found = reading_of(recipe), find(recipe)
    complaints, extractor = Complaints(recipe.bad_records), Speech2TextFeatureExtractor()
    names = [name for name in ("train", "validation", "test") if name in ("train", *splits(found.where))]
    tables = divided({name: opened(recipe, found.where, name, complaints) for name in names}, recipe)
    heard = dict(numbered({name: features(table, extractor, recipe.workers) for name, table in tables.items()}))
    reading: Reading = kind(recipe, {name: split.texts for name, split in heard.items()})
    collate = partial(together, labels=reading.labels, bins=extractor.num_mel_bins)
    first = collate(heard["test"].__getitems__([0]))
    return Task(
        name=found.name,
        title=found.title,
        source=found.home,
        kind="automatic-speech-recognition",
        train=heard.pop("train"),
        splits=heard,
        labels=[],
        processor=Processor((extractor, reading.tokenizer)),
        count=lambda batch: int((batch["labels"] != IGNORED).sum()),
        answer=reading.answer,
        measure=partial(measured, METRICS),
        collate=collate,
        config={**reading.config, "num_mel_bins": extractor.num_mel_bins},
        example=partial(said, recording=tables["test"][0]["audio"], first=first, reading=reading),
        complaints=complaints,
    )


def opened(recipe: Recipe, where: str, split: str, complaints: Complaints) -> Dataset:
    """The good records of a split: `audio` and `text`, whatever the columns are called."""
    found: Any = read(where, split=split)
    column = next((name for name in COLUMNS if name in found.column_names), COLUMNS[0])
    names = {column: "audio", recipe.text.column: "text"}
    select(found.features, list(names), where)
    found = found.remove_columns([name for name in found.column_names if name not in names and name[0] != "_"])
    found = found.rename_columns({name: new for name, new in names.items() if name != new})
    return sift(located(found), {"audio": sound, "text": text}, complaints, processes=recipe.workers or None)


def located(table: Dataset) -> Dataset:
    """The same where the files that a table names are looked for beside it."""
    if table.features["audio"] != Value("string") or "_file" not in table.column_names:
        return table

    def beside(record: Record) -> Record:
        return {"audio": record["audio"] and str(Path(record["_file"]).parent / record["audio"])}

    return table.map(beside, desc="looking for sound")


def features(table: Dataset, extractor: Any, processes: int) -> Dataset:
    """The table with features (frames x bins in one row), how many frames they are, and what the recording was."""
    kinds = Features(
        {
            "text": Value("string"),
            "features": List(Value("float32")),
            "length": Value("int64"),
            "identity": Value("string"),
        }
    )
    return table.map(partial(extracted, extractor=extractor), batched=True, batch_size=100, features=kinds,
                     remove_columns="audio", num_proc=processes or None, desc="listening")  # fmt: skip


def extracted(batch: dict[str, list[Any]], extractor: Any) -> dict[str, list[Any]]:
    """What is heard in the recordings of a batch."""
    rows = [
        extractor(sound(value), sampling_rate=extractor.sampling_rate)["input_features"][0] for value in batch["audio"]
    ]
    return {
        "text": batch["text"],
        "features": [row.flatten() for row in rows],
        "length": [len(row) for row in rows],
        "identity": [sha256(recorded(value)).hexdigest() for value in batch["audio"]],
    }


def numbered(tables: dict[str, Dataset]) -> Iterator[tuple[str, Heard]]:
    """Each split, which knows where its texts begin among those of all."""
    first = 0
    for name, table in tables.items():
        yield name, Heard(table, first)
        first += len(table)


def together(records: Sequence[Record], places: Sequence[int] | None = None, *, labels: Any, bins: int) -> Batch:
    """A batch of recordings, padded to the longest, and of what is said in them."""
    rows = [torch.tensor(record["features"]).view(-1, bins) for record in records]
    lengths = torch.tensor([len(row) for row in rows])
    return {
        "input_features": pad_sequence(rows, batch_first=True),
        "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
        "labels": labels([record["text"] for record in records]),
        "_target": torch.tensor([record["_target"] for record in records]),
    }


def said(model: Any, recording: Any, first: Batch, reading: Reading) -> Example:
    """The first recording of the test, and what the model says of it."""
    batch = {name: value.to(model.device) for name, value in first.items()}
    with torch.no_grad():
        ((text, _),) = reading.answer(model, model(**model_inputs(batch)), batch)
    return Example(sound(recording), {"text": text}, reading.options(batch))
