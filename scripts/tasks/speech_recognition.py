"""Speech recognition: recordings as log-mel features, and their transcriptions.

A decoder generates tokens, or CTC labels each frame with a character or the blank.
"""

import json
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, List, Value
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoFeatureExtractor, AutoTokenizer, Speech2TextFeatureExtractor, Wav2Vec2CTCTokenizer

from qkv.configuration.configuration_audio_encoder import QkvAudioEncoderConfig
from qkv.scripts.data.collate import IGNORED, pad_rows
from qkv.scripts.data.corpus import SpeechData
from qkv.scripts.data.examples import Batch, InvalidRecord, Record
from qkv.scripts.data.loading import public_names
from qkv.scripts.data.own_tables import checked_tables, read_tables
from qkv.scripts.data.pretrained import config_of_init, pretrained_folder
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.splits.division import divide_evenly, divide_rows
from qkv.scripts.data.splits.duplicates import file_sketches
from qkv.scripts.data.tokenization import (
    END,
    PAD,
    SEQ2SEQ_TEMPLATE,
    START,
    UNKNOWN,
    config_fields,
    count_truncated,
    tokenize,
    tokenizer_for,
)  # fmt: skip
from qkv.scripts.data.validation import check_audio, check_number, check_text, file_bytes
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.seq2seq import SPARE, GreedyDecoding
from qkv.scripts.tasks.task import Answer, Task

FEATURES = Features(
    {"text": Value("string"), "features": List(Value("float32")), "length": Value("int64"), "identity": Value("string")}
)
PARTS, LENGTH, UNITS = ("start", "end", "offset", "begin", "start_time", "end_time"), "duration", (1, 0.001)
WORD_DELIMITERS = "|▁␣"  # of CTC tokenizers, the first that no text has: the usual one of transformers


@dataclass(frozen=True)
class Recordings:
    """Examples of features, computed once, with the text and its number among the texts of all splits."""

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
        """Frames of each."""
        return list(self.table["length"])

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


class SpeechRecognition(Task):
    """Transcribe recordings; ValueError where a column is missing.

    Features are computed once and kept in datasets' cache. WER is of generated texts.
    """

    kind = "automatic-speech-recognition"
    has_references = True
    tokenizer: Any
    most: int | None = None  # tokens of a text
    max_tokens: int

    def __init__(self, recipe: Recipe, data: SpeechData) -> None:
        self.extractor = extractor_for(recipe.model.init)
        data, tables = read_recordings(recipe, data)
        learned = list(tables["train"]["text"]) if "train" in tables else []
        config = self.prepare(recipe, learned) | {"num_mel_bins": self.extractor.num_mel_bins}
        self.references: list[str] = []
        examples = {}
        for name, table in tables.items():
            heard = self.aligned(name, features(table, self.extractor, recipe.data.workers), data)
            examples[name] = Recordings(heard, len(self.references))
            self.references += heard["text"]
        texts = {name: list(own.table["text"]) for name, own in examples.items()}
        processor, cut = Processor((self.extractor, self.tokenizer)), {}
        if self.most:
            lengths = {name: [len(row) for row in tokenize(self.tokenizer, own)] for name, own in texts.items()}
            cut = count_truncated(lengths, self.most)
            self.max_tokens = min(self.most, max(map(max, filter(None, lengths.values())))) + SPARE
        made = {"max_new_tokens": self.most + SPARE} if self.most else {}
        super().__init__(
            data, examples, processor, config, metrics=("wer", "exact_match"), generation=made, truncated=cut
        )

    @abstractmethod
    def prepare(self, recipe: Recipe, texts: Sequence[str]) -> dict[str, Any]:
        """Train the tokenizer on the training texts, and return the fields of the config that follow."""

    def aligned(self, split: str, table: Dataset, data: SpeechData) -> Dataset:
        """Return the rows of a split that can be learned."""
        return table

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        rows = [torch.tensor(record["features"]).view(-1, self.extractor.num_mel_bins) for record in records]
        lengths = torch.tensor([len(row) for row in rows])
        limits = {"truncation": True, "max_length": self.most} if self.most else {}
        tokens = tokenize(self.tokenizer, [record["text"] for record in records], **limits)
        return {
            "input_features": pad_sequence(rows, batch_first=True),
            "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
            "labels": pad_rows(tokens, IGNORED),
            "_target": torch.tensor([record["_target"] for record in records]),
        }


class Seq2SeqSpeechRecognition(GreedyDecoding, SpeechRecognition):
    """A decoder generates tokens greedily."""

    inputs = ("input_features", "attention_mask")

    def prepare(self, recipe: Recipe, texts: Sequence[str]) -> dict[str, Any]:
        """Make the recipe's tokenizer; texts are truncated to `text.length` tokens."""
        self.tokenizer, self.most = tokenizer_for(recipe, texts, SEQ2SEQ_TEMPLATE), recipe.text.length
        return config_fields(self.tokenizer, decoder_start_token_id=self.tokenizer.pad_token_id)


class CTCSpeechRecognition(SpeechRecognition):
    """A character or the blank for each frame; equal labels in a row are one character."""

    def prepare(self, recipe: Recipe, texts: Sequence[str]) -> dict[str, Any]:
        """Make a tokenizer of the characters that occur in the texts."""
        if recipe.text.tokenizer != "characters":
            raise ValueError(
                f"text.tokenizer={recipe.text.tokenizer!r} is not for {recipe.model.architecture}, which labels frames "
                "with characters; set text.tokenizer=characters"
            )
        self.tokenizer = ctc_tokenizer(texts, recipe.model.init)
        known = config_of_init(recipe.model.init) if recipe.model.init else QkvAudioEncoderConfig()
        self.stride = prod(recipe.model.config.get("conv_strides", known.conv_strides))
        # A text too long for its recording has no alignment and an infinite loss, in evaluated splits, too.
        return config_fields(self.tokenizer, ctc_zero_infinity=True)

    def aligned(self, split: str, table: Dataset, data: SpeechData) -> Dataset:
        """Leave out training rows whose text has no alignment, for it is too long for its recording; count others."""
        rows = tokenize(self.tokenizer, list(table["text"]))
        needed = [len(row) + int((row[1:] == row[:-1]).sum()) for row in rows]  # a blank between equal labels
        held = [-(-frames // self.stride) for frames in table["length"]]
        long = [row for row, (least, most) in enumerate(zip(needed, held, strict=True)) if least > most]
        if not long:
            return table
        reason = f"{split} texts too long for their recording, without a CTC alignment"
        if split != "train":
            data.read.mended[f"{reason}, whose loss counts as 0"] = len(long)
            return table
        first = (
            f"{table[long[0]]['text'][:40]!r}, which needs {needed[long[0]]} labels, and has {held[long[0]]} of sound"
        )
        data.invalid_records.check_share(len(long), len(table), f"{first} (smaller model.conv_strides give more)")
        data.read.left_out[reason] = len(long)
        return table.select(sorted({*range(len(table))} - {*long}))

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the most probable label of each frame, equal ones in a row joined, and the references."""
        best = outputs.logits.argmax(-1)
        real = model.base_model.padding_mask(batch["attention_mask"], outputs.logits)
        best = best.where(real.bool(), self.tokenizer.pad_token_id)
        texts = self.tokenizer.batch_decode(best.tolist())  # special tokens too, as in pipelines
        return [(text, self.references[index]) for text, index in zip(texts, batch["_target"].tolist(), strict=True)]


def read_recordings(recipe: Recipe, data: SpeechData) -> tuple[SpeechData, dict[str, Dataset]]:
    """Read the valid recordings of data in the splits that the recipe asks for.

    ValueError for a missing column, and for columns that name parts of recordings.
    """
    made, read = replace(recipe, data=replace(recipe.data, source=data.where)), ReadReport()
    tables = read_tables(made, ["audio", recipe.text.column], read, (*PARTS, LENGTH))
    there = [(name, table) for table in tables.values() for name in table.column_names]
    for name, table in there:
        if name in PARTS and any(value not in (None, "", 0, "0", "0.0") for value in table[name]):
            mend = "give a file for each part, or leave out the column"
            raise ValueError(
                f"{data.where}: column {name!r} names parts of recordings, but whole ones are read; {mend}"
            )
    checks: dict[Any, Any] = {"audio": check_audio, recipe.text.column: check_text}
    checks |= {("audio", LENGTH): check_length} if LENGTH in dict(there) else {}
    tables, facts = checked_tables(tables, made, checks, read)
    if data.where == recipe.data.source:
        division = divide_rows(file_sketches(tables, "audio"), recipe, tables)
    else:  # made by a recipe
        division = divide_evenly({name: len(table) for name, table in tables.items()}, recipe)
    tables = division.of_tables(tables)
    if recipe.text.column != "text":
        tables = {name: table.rename_column(recipe.text.column, "text") for name, table in tables.items()}
    return replace(data, invalid_records=facts["invalid_records"], read=read, report=division.report), tables


def check_length(audio: Any, length: Any) -> None:
    """Raise InvalidRecord for a recording of another length than stated, in seconds or thousandths of them."""
    seconds = len(check_audio(audio)) / 16_000
    if length is not None and all(abs(check_number(length) * unit - seconds) > 0.1 + 0.02 * seconds for unit in UNITS):
        raise InvalidRecord(f"{seconds:.2f} seconds of sound, but a {LENGTH} of {length}")


def extractor_for(init: str | None) -> Any:
    """Return the feature extractor of the pretrained model, or a new one; ValueError for features of another kind."""
    if init is None:
        return Speech2TextFeatureExtractor()
    extractor = AutoFeatureExtractor.from_pretrained(pretrained_folder(init))
    if not isinstance(extractor, Speech2TextFeatureExtractor):
        raise ValueError(
            f"init={init!r} reads the features of a {type(extractor).__name__}, and trainings make those of "
            "Speech2TextFeatureExtractor; give a model of these, or fine-tune it under transformers' Trainer"
        )
    return extractor


def features(table: Dataset, extractor: Any, processes: int) -> Dataset:
    """Compute features (frames x bins in one row), their number of frames, and the hash of each recording."""
    return table.map(partial(extract, extractor=extractor), batched=True, batch_size=100, features=FEATURES,
                     remove_columns=table.column_names, num_proc=processes or None,
                     desc="extracting features")  # fmt: skip


def extract(batch: Mapping[str, list[Any]], extractor: Any) -> dict[str, list[Any]]:
    """Compute the features of a batch of recordings."""
    samples = map(check_audio, batch["audio"])
    rows = [extractor(each, sampling_rate=extractor.sampling_rate)["input_features"][0] for each in samples]
    return {
        "text": batch["text"],
        "features": [row.flatten() for row in rows],
        "length": [len(row) for row in rows],
        "identity": [sha256(file_bytes(value, "recording")).hexdigest() for value in batch["audio"]],
    }


def ctc_tokenizer(texts: Sequence[str], init: str | None = None) -> Any:
    """Return a tokenizer of the characters that occur in texts, or that of a pretrained model; padding is the blank.

    ValueError for texts with characters that the pretrained one does not know.
    """
    if init is not None:
        pretrained = AutoTokenizer.from_pretrained(pretrained_folder(init))
        if unknown := sorted(set("".join(texts)) - set(pretrained.get_vocab()) - {" "}):
            raise ValueError(f"init={init!r} does not know the character {unknown[0]!r}; leave it out of the texts")
        return pretrained
    letters = set().union(*texts) - {" "}
    between = next((mark for mark in WORD_DELIMITERS if mark not in letters), WORD_DELIMITERS[-1])
    words = (PAD, END, START, UNKNOWN, between, *sorted(letters - {between}))
    special = {"pad_token": PAD, "eos_token": END, "bos_token": START, "unk_token": UNKNOWN}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "vocab.json"
        path.write_text(json.dumps({word: index for index, word in enumerate(words)}), encoding="utf-8")
        return Wav2Vec2CTCTokenizer(str(path), word_delimiter_token=between, **special)
