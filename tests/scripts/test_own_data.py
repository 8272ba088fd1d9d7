"""The matrix of own data: each kind x each form of file x what can be odd about it gives the right task, or one sentence.

A task has the classes that were written, each with its share in the test, and no row in two splits; a sentence names
the file, and row and column where there are such. `KINDS`, `FORMS` and `CHECKS` are the axes; most of their product is
slow.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.audio import write_wav
from qkv.scripts.tasks.causal_lm import CausalLM, TargetLM
from qkv.scripts.tasks.contrastive import Contrastive
from qkv.scripts.tasks.image_classification import ImageClassification
from qkv.scripts.tasks.object_detection import ObjectDetection
from qkv.scripts.tasks.registry import load
from qkv.scripts.tasks.seq2seq import Seq2Seq
from qkv.scripts.tasks.speech_recognition import Seq2SeqSpeechRecognition
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import TextClassification, TextRegression
from qkv.scripts.tasks.token_classification import TokenClassification
from recipes import recipe_of
from sampling import sampled
from sine_waves import tone

Rows = list[dict[str, Any]]
COUNT, BAD = 40, 6  # rows, and the one of which something is missing, counted from 0
WORDS = "tree river stone cloud winter garden letter window bridge market".split()


@dataclass(frozen=True)
class Kind:
    """A kind of data: the task it is for, its columns as `text.…` fields, and the forms of files that can hold it."""

    task: type[Task]
    architecture: str
    columns: dict[str, str]
    forms: str
    media: str = ""
    classes: bool = False
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """Return the column that is to be learned."""
        return list(self.columns.values())[-1]


TABLES = "csv semicolons tsv jsonl json parquet"
ENCODER, DECODER = "QkvEncoderForSequenceClassification", "QkvDecoderForCausalLM"
SEQ2SEQ = "QkvEncoderDecoderForConditionalGeneration"
KINDS = {
    "classes": Kind(TextClassification, ENCODER, {"column": "text", "label": "label"}, f"{TABLES} disk", classes=True),
    "numbers": Kind(TextRegression, ENCODER, {"column": "text", "label": "score"}, f"{TABLES} disk"),
    "pairs": Kind(
        TextClassification, ENCODER, {"column": "text", "pair": "other", "label": "label"}, f"{TABLES} disk",
        classes=True,
    ),
    "texts": Kind(CausalLM, DECODER, {"column": "text"}, f"{TABLES} txt disk"),
    "targets": Kind(Seq2Seq, SEQ2SEQ, {"column": "source", "target": "target"}, f"{TABLES} disk"),
    "responses": Kind(TargetLM, DECODER, {"column": "prompt", "target": "response"}, f"{TABLES} disk"),
    "tags": Kind(
        TokenClassification, "QkvEncoderForTokenClassification", {"column": "tokens", "label": "tags"}, f"{TABLES} disk"
    ),
    "images": Kind(
        ImageClassification, "QkvImageEncoderForImageClassification", {"column": "image", "label": "label"},
        f"{TABLES} folders", media="image", classes=True, fields={"model": {"image_size": 8}},
    ),
    "captions": Kind(
        Contrastive, "QkvDualEncoderModel", {"column": "text"}, TABLES, media="image",
        fields={"model": {"vision_config": {"image_size": 8}}},
    ),
    "boxes": Kind(
        ObjectDetection, "QkvDetectionForObjectDetection", {"label": "objects"}, "jsonl json parquet coco",
        media="image", fields={"shortest_edge": 16},
    ),
    "speech": Kind(
        Seq2SeqSpeechRecognition, "QkvSpeechEncoderDecoderForSpeechSeq2Seq", {"column": "text"}, TABLES, media="audio"
    ),
}  # fmt: skip
TEXT_FORMS = ("csv", "semicolons", "tsv", "jsonl", "json", "txt")


def text(random: Random) -> str:
    """A text that no other is like."""
    return " ".join([*random.choices(WORDS, k=4), f"ä{random.randrange(10**6)}"])


def make_rows(kind: str, random: Random, labels: list[str]) -> Rows:
    """Rows of a kind, with these classes where it has some."""
    columns = KINDS[kind].columns
    rows: Rows = []
    for number, label in enumerate(labels):
        row: dict[str, Any] = {name: text(random) for name in columns.values()}
        if "label" in row:
            row["label"] = label
        if kind == "numbers":
            row["score"] = round(random.random() * 10, 3) + 0.0001
        elif kind == "tags":
            row |= {"tokens": row["tokens"].split(), "tags": [f"B-{label}", "O", "O", "O", "O"]}
        elif kind == "boxes":
            row["objects"] = [{"bbox": [1, 1, 4, 5], "category": label}]
        media = KINDS[kind].media
        rows.append({**({media: number} if media else {}), **{k: v for k, v in row.items() if k != "image"}})
    return rows


def write_media(folder: Path, rows: Rows, media: str) -> None:
    """Write the images or recordings of rows, and put their relative paths in place of their numbers."""
    (folder / "filés").mkdir(parents=True, exist_ok=True)
    for place, row in enumerate(rows):
        number = row[media]
        if media == "image":
            row[media] = f"filés/{place}.png"
            pixels = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / row[media])
        else:
            row[media] = f"filés/{place}.wav"
            (folder / row[media]).write_bytes(write_wav(tone(12, number)))


def cell(value: Any) -> Any:
    """A value in a file of text."""
    return "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def write(form: str, folder: Path, rows: Rows, columns: list[str], encoding: str = "utf-8", name: str = "own") -> str:
    """Write rows in a form; return the `data=` that says where."""
    if form in ("csv", "semicolons", "tsv"):
        path = folder / f"{name}.{'tsv' if form == 'tsv' else 'csv'}"
        with path.open("w", encoding=encoding, newline="") as file:
            writer = csv.writer(file, delimiter={"csv": ",", "semicolons": ";", "tsv": "\t"}[form])
            writer.writerow(columns)
            writer.writerows([cell(row[column]) for column in columns] for row in rows)
    elif form in ("jsonl", "json"):
        path = folder / f"{name}.{form}"
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        content = "\n".join(lines) if form == "jsonl" else f"[{', '.join(lines)}]"
        path.write_text(content, encoding=encoding)
    elif form == "parquet":
        path = folder / f"{name}.parquet"
        schema = None if rows else pa.schema([(column, pa.string()) for column in columns])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    elif form == "disk":
        path = folder / name
        Dataset.from_dict({column: [row[column] for row in rows] for column in columns}).save_to_disk(path)
    else:
        return WRITERS[form](folder, rows, columns, encoding, name)
    return str(path)


def write_txt(folder: Path, rows: Rows, columns: list[str], encoding: str, name: str) -> str:
    """Write paragraphs of a text."""
    (folder / f"{name}.txt").write_text("\n\n".join(row["text"] or "" for row in rows), encoding=encoding)
    return str(folder / f"{name}.txt")


def write_folders(folder: Path, rows: Rows, columns: list[str], encoding: str, name: str) -> str:
    """Move images into folders of their classes."""
    for row in rows:
        place = folder / name / row["label"]
        place.mkdir(parents=True, exist_ok=True)
        (folder / row["image"]).rename(place / Path(row["image"]).name)
    (folder / name).mkdir(exist_ok=True)
    return str(folder / name)


def write_coco(folder: Path, rows: Rows, columns: list[str], encoding: str, name: str) -> str:
    """Write the boxes of images as COCO does."""
    names = sorted({each["category"] for row in rows for each in row["objects"] or ()})
    content = {
        "images": [{"id": number, "file_name": row["image"]} for number, row in enumerate(rows)],
        "annotations": [
            {"image_id": number, "category_id": names.index(each["category"]), "bbox": each["bbox"]}
            for number, row in enumerate(rows)
            for each in row["objects"] or ()
        ],
        "categories": [{"id": number, "name": each} for number, each in enumerate(names)],
    }
    (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return str(folder / f"{name}.json")


WRITERS: dict[str, Callable[[Path, Rows, list[str], str, str], str]] = {
    "txt": write_txt, "folders": write_folders, "coco": write_coco,
}  # fmt: skip


@dataclass
class Case:
    """A kind in a form, in a folder."""

    kind: str
    form: str
    folder: Path
    labels: list[str] = field(default_factory=lambda: ["ham"] * 24 + ["spam"] * 16)

    def __post_init__(self) -> None:
        self.own = KINDS[self.kind]
        self.rows = make_rows(self.kind, Random(0), self.labels)
        self.columns = list(self.rows[0]) if self.rows else [self.own.media, *self.own.columns.values()]
        self.columns = list(dict.fromkeys(column for column in self.columns if column))

    def write(self, **options: str) -> str:
        """Write the rows; return where."""
        if self.own.media:
            write_media(self.folder, self.rows, self.own.media)
        return write(self.form, self.folder, self.rows, self.columns, **options)

    def task(self, where: str, **fields: Any) -> Task:
        """Load them as a recipe does."""
        words = {key: name for key, name in self.own.columns.items() if name not in ("image", "objects")}
        if self.own.task is ObjectDetection:
            words = {}
        text = {"tokenizer": "characters", "length": 64, **words}
        return load(recipe_of(
            data=where, architecture=self.own.architecture, text=text, **{**self.own.fields, **fields}
        ))  # fmt: skip

    def check(self, task: Task, rows: int | None = None) -> None:
        """Assert that it is the right task, with all rows in its splits, and of each class its share."""
        count = len(self.rows) if rows is None else rows
        assert type(task) is self.own.task
        report = task.data.report
        assert report["leaked"]["test"]["equal"] == 0
        sizes = {name: size for name, size in task.sizes().items() if self.own.task is not CausalLM}
        if sizes:
            assert sum(map(int, sizes.values())) == count and abs(sizes["test"] - count / 10) <= 1
        if self.own.classes:
            found, written = report["classes"], Counter(row["label"] for row in self.rows if row["label"])
            assert Counter(found["train"]) + Counter(found["test"]) == written
            assert set(task.labels) == set(written)
            assert all(abs(found["test"].get(name, 0) - own / 10) <= 1 for name, own in written.items())

    @property
    def file(self) -> str:
        """Return a word for the file that every sentence about it has."""
        return self.folder.name


def clean(case: Case) -> None:
    case.check(case.task(case.write()))


def shuffled(case: Case) -> None:
    Random(1).shuffle(case.labels)
    case.__post_init__()
    clean(case)


def alternating(case: Case) -> None:
    case.labels = ["ham", "spam"] * (COUNT // 2)
    case.__post_init__()
    task = case.task(case.write())
    case.check(task)
    if case.own.classes:
        assert task.data.report["classes"]["test"] == {"ham": 2, "spam": 2}


def duplicates(case: Case) -> None:
    case.rows += [dict(row) for row in case.rows[::4]]
    clean(case)


def one_class(case: Case) -> None:
    case.labels = ["ham"] * COUNT
    case.__post_init__()
    if case.own.classes:
        with raises_sentence(case.file, "'label'", "'ham'"):
            case.task(case.write())
    else:
        clean(case)


def missing(case: Case) -> None:
    case.rows[BAD][case.own.last] = None
    where = case.write()
    row = {"csv": BAD + 2, "semicolons": BAD + 2, "tsv": BAD + 2}.get(case.form, BAD + 1)
    with raises_sentence(f"row {row}", case.own.last, "bad_records=0.03"):
        case.task(where)
    case.check(case.task(where, bad_records=0.5), len(case.rows) - 1)


def latin_1(case: Case) -> None:
    if case.own.media:  # whose paths are not Latin-1 alone
        case.rows[0][case.own.last] = "ä" if case.own.last == "text" else case.rows[0][case.own.last]
    where = case.write(encoding="latin-1")
    with raises_sentence(case.file, "letter"):
        case.task(where)
    case.check(case.task(where, encoding="latin-1"))


def utf_16(case: Case) -> None:
    case.check(case.task(case.write(encoding="utf-16")))


def unicode_names(case: Case) -> None:
    case.folder = case.folder / "größe 数据"
    case.folder.mkdir()
    case.check(case.task(case.write(name="данные ñ")))


def one_row(case: Case) -> None:
    case.rows = case.rows[:1]
    with raises_sentence(case.file, "1 rows"):
        case.task(case.write())


def no_rows(case: Case) -> None:
    case.rows = []
    with raises_sentence(case.file):
        case.task(case.write())


CHECKS = [
    clean, shuffled, alternating, duplicates, one_class, missing, latin_1, utf_16, unicode_names, one_row, no_rows,
]  # fmt: skip
# Forms in which something odd can be: paragraphs, folders and COCO lack no class, and of text alone is there an encoding.
POSSIBLE = {missing: {*f"{TABLES} disk".split()}, latin_1: {*TEXT_FORMS}, utf_16: {*TEXT_FORMS}}
CASES = [
    (kind, form, check)
    for check in CHECKS
    for kind, own in KINDS.items()
    for form in own.forms.split()
    if form in POSSIBLE.get(check, own.forms)
]


@pytest.mark.parametrize(("kind", "form", "check"), sampled(CASES, 13))
def test_own_data_make_a_task_or_a_sentence(
    kind: str, form: str, check: Callable[[Case], None], tmp_path: Path, no_cache: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    check(Case(kind, form, folder))
