"""Speech recognition: recordings as log-mel features, and their transcriptions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, List, Value
from torch.nn.utils.rnn import pad_sequence
from transformers import Speech2TextFeatureExtractor

from qkv.scripts.data.corpus import SpeechData
from qkv.scripts.data.examples import Batch, Record, model_inputs
from qkv.scripts.data.loading import public_names, read, select, splits
from qkv.scripts.data.text_columns import add_splits
from qkv.scripts.data.validation import RecordValidation, check_audio, check_text, valid_rows, wav_bytes
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Example, Task
from qkv.scripts.tasks.transcription import Transcriber

METRICS = ("wer", "exact_match")
COLUMNS = ("audio", "file_name")  # of recordings: on the Hub, and in the table of a folder
FEATURES = Features(
    {"text": Value("string"), "features": List(Value("float32")), "length": Value("int64"), "identity": Value("string")}
)


@dataclass(frozen=True)
class Recordings:
    """Examples of features, computed once, the text, and its number among those of all splits."""

    table: Dataset
    first: int

    def __len__(self) -> int:
        return len(self.table)

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        rows = self.table.with_format("numpy", ["features"], output_all_columns=True)[list(indices)]
        columns = zip(rows["features"], rows["text"], indices, strict=True)
        return [{"features": row, "text": text, "_target": self.first + index} for row, text, index in columns]

    @property
    def lengths(self) -> list[int]:
        """Return the number of frames of each."""
        return list(self.table["length"])

    @property
    def texts(self) -> list[str]:
        """Return the transcription of each."""
        return list(self.table["text"])

    def contents(self) -> Iterator[bytes]:
        """Yield recordings by their files and texts: the last bits of features differ between machines."""
        for name in ("identity", "text"):
            yield "\n".join(self.table[name]).encode()


@dataclass(frozen=True)
class Processor:
    """A feature extractor and a tokenizer, which the folder of a model holds both."""

    parts: tuple[Any, ...]

    def save_pretrained(self, folder: Path) -> None:
        """Write both."""
        for part in self.parts:
            part.save_pretrained(folder)


def read_speech(recipe: Recipe) -> SpeechData:
    """Name the recordings of files, folders and the Hub."""
    return SpeechData(**public_names(recipe.data.source), where=recipe.data.source)


def speech_recognition(kind: Callable[..., Transcriber], recipe: Recipe, data: SpeechData) -> Task:
    """Make the task of transcribing recordings; ValueError where a column is missing.

    Features are computed once and kept in datasets' cache. Where there is no test split every tenth record is for it,
    and WER is of what the model generates.
    """
    invalid, extractor = RecordValidation(recipe.data.bad_records), Speech2TextFeatureExtractor()
    names = [name for name in ("train", "validation", "test") if name in ("train", *splits(data.where))]
    tables = add_splits({name: valid_recordings(recipe, data.where, name, invalid) for name in names}, recipe)
    examples = numbered({name: features(table, extractor, recipe.data.workers) for name, table in tables.items()})
    transcriber = kind(recipe, {name: split.texts for name, split in examples.items()})
    collate_split = partial(collate, labels=transcriber.labels, bins=extractor.num_mel_bins)
    first = collate_split(examples["test"].__getitems__([0]))
    return Task(
        data=replace(data, invalid_records=invalid),
        kind="automatic-speech-recognition",
        train=examples.pop("train"),
        splits=examples,
        processor=Processor((extractor, transcriber.tokenizer)),
        answer=transcriber.answer,
        metrics=METRICS,
        collate=collate_split,
        config={**transcriber.config, "num_mel_bins": extractor.num_mel_bins},
        example=partial(transcription, recording=tables["test"][0]["audio"], first=first, transcriber=transcriber),
    )


def valid_recordings(recipe: Recipe, where: str, split: str, invalid: RecordValidation) -> Dataset:
    """Read the valid records of a split as `audio` and `text`, whatever the columns are called."""
    table: Any = read(where, split=split)
    column = next((name for name in COLUMNS if name in table.column_names), COLUMNS[0])
    names = {column: "audio", recipe.text.column: "text"}
    select(table.features, list(names), where)
    table = table.remove_columns([name for name in table.column_names if name not in names and name[0] != "_"])
    table = table.rename_columns({name: new for name, new in names.items() if name != new})
    checks = {"audio": check_audio, "text": check_text}
    return valid_rows(with_paths(table), checks, invalid, processes=recipe.data.workers or None)


def with_paths(table: Dataset) -> Dataset:
    """Complete the names of files by the folder of the table that names them."""
    if table.features["audio"] != Value("string") or "_file" not in table.column_names:
        return table

    def beside(record: Record) -> Record:
        return {"audio": record["audio"] and str(Path(record["_file"]).parent / record["audio"])}

    return table.map(beside, desc="locating recordings")


def features(table: Dataset, extractor: Any, processes: int) -> Dataset:
    """Compute features (frames x bins in one row), their number of frames, and the hash of each recording."""
    return table.map(partial(extract, extractor=extractor), batched=True, batch_size=100, features=FEATURES,
                     remove_columns="audio", num_proc=processes or None, desc="extracting features")  # fmt: skip


def extract(batch: Mapping[str, list[Any]], extractor: Any) -> dict[str, list[Any]]:
    """Compute the features of a batch of recordings."""
    samples = map(check_audio, batch["audio"])
    rows = [extractor(each, sampling_rate=extractor.sampling_rate)["input_features"][0] for each in samples]
    return {
        "text": batch["text"],
        "features": [row.flatten() for row in rows],
        "length": [len(row) for row in rows],
        "identity": [sha256(wav_bytes(value)).hexdigest() for value in batch["audio"]],
    }


def numbered(tables: Mapping[str, Dataset]) -> dict[str, Recordings]:
    """Return the examples of each split, which know where their texts begin among those of all."""
    examples, first = {}, 0
    for name, table in tables.items():
        examples[name] = Recordings(table, first)
        first += len(table)
    return examples


def collate(records: Sequence[Record], places: Sequence[int] | None = None, *, labels: Any, bins: int) -> Batch:
    """Make a batch of recordings, padded to the longest, and their transcriptions."""
    rows = [torch.tensor(record["features"]).view(-1, bins) for record in records]
    lengths = torch.tensor([len(row) for row in rows])
    return {
        "input_features": pad_sequence(rows, batch_first=True),
        "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
        "labels": labels([record["text"] for record in records]),
        "_target": torch.tensor([record["_target"] for record in records]),
    }


def transcription(model: Any, recording: Any, first: Batch, transcriber: Transcriber) -> Example:
    """Return the first recording of the test, and the model's transcription."""
    batch = {name: value.to(model.device) for name, value in first.items()}
    with torch.no_grad():
        ((text, _),) = transcriber.answer(model, model(**model_inputs(batch)), batch)
    return Example(check_audio(recording), {"text": text}, transcriber.options(batch))
