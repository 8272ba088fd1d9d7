"""Every kind of own data, in every form of table, is the task of its columns; a row without a value is named.

A task has the classes that were written, each with its share in the test, and no row in two splits.
"""

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import own_runs
from checkout import ROOT
from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.tasks.causal_lm import CausalLM, TargetLM
from qkv.scripts.tasks.contact_prediction import ContactPrediction
from qkv.scripts.tasks.contrastive import Contrastive
from qkv.scripts.tasks.denoising import Denoising
from qkv.scripts.tasks.image_classification import ImageClassification
from qkv.scripts.tasks.object_detection import ObjectDetection
from qkv.scripts.tasks.protein_folding import ProteinFolding
from qkv.scripts.tasks.question_answering import QuestionAnswering
from qkv.scripts.tasks.registry import load
from qkv.scripts.tasks.seq2seq import MultitaskSeq2Seq, Seq2Seq
from qkv.scripts.tasks.speech_recognition import CTCSpeechRecognition, Seq2SeqSpeechRecognition
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import TextClassification, TextRegression
from qkv.scripts.tasks.token_classification import TokenClassification
from sampling import sampled

COUNT, BAD = 40, 6  # rows, and the one of which something is missing, counted from 0
TASKS: dict[str, type[Task]] = {
    "classes": TextClassification, "numbers": TextRegression, "pairs": TextClassification, "texts": CausalLM,
    "targets": Seq2Seq, "responses": TargetLM, "tags": TokenClassification, "images": ImageClassification,
    "captions": Contrastive, "boxes": ObjectDetection, "speech": Seq2SeqSpeechRecognition, "ctc": CTCSpeechRecognition,
    **dict.fromkeys(("answers", "decoder-answers", "seq2seq-answers"), QuestionAnswering),
    "proteins": ProteinFolding, "folds": ContactPrediction, "encoder-folds": ContactPrediction, "denoised": Denoising, "tasks": MultitaskSeq2Seq,
}  # fmt: skip
FORMS = ("csv", "tsv", "jsonl", "json", "parquet", "disk")
MEDIA = ("images", "captions", "boxes", "speech", "ctc")
CASES = [
    (kind, form)
    for kind, form in product(TASKS, FORMS)
    if not (form == "disk" and kind in MEDIA) and not (form in ("csv", "tsv") and kind == "boxes")
]
Rows = list[dict[str, Any]]


def check(task: Task, kind: str, rows: Rows) -> None:
    """Assert that it is the right task, with all rows in its splits, and of each class its share."""
    assert type(task) is TASKS[kind]
    report = task.data.report
    assert report["leaked"]["test"]["equal"] == 0
    if kind not in ("texts", "denoised", "chats", "infilled"):  # whose examples are no rows
        sizes = [int(size) for size in task.sizes().values()]
        assert sum(sizes) == len(rows) and abs(int(task.sizes()["test"]) - len(rows) / 10) <= 1
    if kind in ("classes", "pairs", "images"):
        counts, classes = Counter(row["label"] for row in rows), report["classes"]
        assert sum(map(Counter, classes.values()), Counter()) == counts and set(task.labels) == set(counts)
        assert all(abs(classes["test"].get(name, 0) - count / 10) <= 1 for name, count in counts.items())


@pytest.mark.parametrize(("kind", "form"), sampled(CASES, 7))
def test_own_data_are_the_task_of_their_columns(kind: str, form: str, tmp_path: Path, no_cache: Path) -> None:
    own_runs.data(kind, tmp_path, COUNT).unlink()
    rows = own_runs.rows(kind, COUNT)
    rows += [dict(row) for row in rows[::8]]  # which stay in the split of their equals
    words = [word for word in own_runs.KINDS[kind] if word != "max_steps=2"]
    check(load(infer(str(write_rows(tmp_path / f"own.{form}", rows)), words)[0]), kind, rows)
    last = list(rows[BAD])[-1]
    rows[BAD][last] = None
    (tmp_path / "bad").mkdir()
    for media in tmp_path.glob("files"):
        media.rename(tmp_path / "bad" / "files")
    where = str(write_rows(tmp_path / "bad" / f"own.{form}", rows))
    with raises_sentence(f"row {BAD + (2 if form in ('csv', 'tsv') else 1)}", last, "bad_records=0.03"):
        load(infer(where, words)[0])
    check(load(infer(where, [*words, "bad_records=0.5"])[0]), kind, rows[:BAD] + rows[BAD + 1 :])


def test_one_class_is_nothing_to_tell_apart(tmp_path: Path) -> None:
    rows = [{"text": f"number {number}", "label": "ham"} for number in range(COUNT)]
    with raises_sentence("own.csv", "'label'", "'ham'"):
        load(infer(str(write_rows(tmp_path / "own.csv", rows)), ["text.label=label"])[0])


# The page on own data -------------------------------------------------------------------------------------------------


PAGE = (ROOT / "scripts" / "data" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"((?:[^\n]+\n)+)\n```\w+\n(.*?)```", PAGE, re.DOTALL)
KINDS = [(*named.groups(), rows) for text, rows in BLOCKS if (named := re.search(r"`([\w.]+)`, for `([\w-]+)`", text))]


def test_all_kinds_are_seen() -> None:
    assert len(KINDS) == 11 and len({task for _, task, _ in KINDS}) == 10 and PAGE.count(", for `") == 11


@pytest.mark.parametrize(("name", "task", "rows"), KINDS, ids=[name for name, _, _ in KINDS])
def test_rows_are_learned_as_the_page_says(name: str, task: str, rows: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(rows, encoding="utf-8")
    assert infer(str(tmp_path / name))[1]["task"] == task
