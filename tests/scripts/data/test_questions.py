"""Questions in every form of file: answers at their places, none for the unanswerable, contexts in one split."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.questions import AnsweredQuestions, answers_of, read_questions
from recipes import recipe_of

CONTEXT = " Ada met Bo in Köln. Bo lives there."
KOELN = [{"text": "Köln", "answer_start": 15}]
FORMS: dict[str, tuple[Any, Any]] = {
    "objects": (KOELN, None),
    "JSON": (json.dumps(KOELN), None),
    "object of lists": ({"text": ["Köln"], "answer_start": [15]}, None),
    "as Python writes it": ("{'text': ['Köln'], 'answer_start': [15]}", None),
    "object": ({"text": "Köln", "answer_start": 15}, None),
    "without a place": ({"text": ["Köln"]}, None),
    "text and place": ("Köln", "15"),
    "text and place of a column with gaps": ("Köln", 15.0),
    "lists": (["Köln"], "[15]"),
    "text alone": ("Köln", float("nan")),
    "with spaces": (" Köln", 14),
}
NONE = (None, "", [], "[]", {"text": [], "answer_start": []}, '{"text": [], "answer_start": []}')


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_has_its_place(form: str) -> None:
    assert answers_of(CONTEXT, *FORMS[form]) == [("Köln", 15)]


@pytest.mark.parametrize("value", NONE, ids=str)
def test_no_answer_has_many_forms(value: Any) -> None:
    assert answers_of(CONTEXT, value) == answers_of(CONTEXT, value, -1) == []


@pytest.mark.parametrize(
    ("value", "start", "mentions"),
    [
        ("Bo", None, ("'Bo'", "answer_start")),  # twice
        ("Wien", None, ("'Wien'", "task=seq2seq")),
        ("Köln", 14, ("answer_start=14", "'Köln'", "' Köl'")),
        ("Köln", -1, ("answer_start=-1", "'Köln'")),
        ("Köln", "15th", ("'15th'",)),
        (["Köln", "Ada"], [15], ("2 answers", "1 places")),
        ({"answer": "Köln"}, None, ("answer", "text", "answer_start")),
        ([" "], None, ("empty",)),
    ],
)
def test_an_answer_elsewhere_is_refused(value: Any, start: Any, mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions, error=InvalidRecord):
        answers_of(CONTEXT, value, start)


def asked(number: int) -> dict[str, Any]:
    """A question about one of fifteen contexts, and its answer; every fourth has none."""
    context = f"Person {number % 15} lives in Oslo and has {number % 15 + 20} books and Oslo's sun."
    start = context.index(str(number % 15 + 20))
    known = [] if number % 4 == 0 else [{"text": str(number % 15 + 20), "answer_start": start}]
    return {"id": str(number), "question": f"How many books, asks {number}?", "answers": known, "context": context}


ROWS = [asked(number) for number in range(60)]


def nested(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows as SQuAD's file has them."""
    questions = [{"is_impossible": not row["answers"], **row} for row in rows]
    paragraphs = [{"context": row.pop("context"), "qas": [row]} for row in questions]
    return {
        "version": "v2.0",
        "data": [{"title": "a", "paragraphs": paragraphs[:30]}, {"title": "b", "paragraphs": paragraphs[30:]}],
    }


def flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with a column for the text and one for the place of each answer."""
    first = [(row["answers"] or [{"text": "", "answer_start": None}])[0] for row in rows]
    return [
        {
            "paragraph": row["context"],
            "question": row["question"],
            "answer": own["text"],
            "answer_start": own["answer_start"],
        }
        for row, own in zip(rows, first, strict=True)
    ]


def write(form: str, folder: Path) -> Path:
    """A table of the rows in one of the forms."""
    path = folder / f"own.{form.rpartition(' ')[2]}"
    if form == "SQuAD's json":
        path.write_text(json.dumps(nested(ROWS)))
        return path
    if form == "pandas' csv":
        pd.DataFrame(ROWS).to_csv(path)
        return path
    return write_rows(path, flat(ROWS) if form.startswith("flat") else ROWS)


@pytest.mark.parametrize(
    "form", ["SQuAD's json", "jsonl", "csv", "pandas' csv", "parquet", "disk", "flat csv", "flat jsonl", "flat parquet"]
)
def test_every_form_is_question_answering(form: str, tmp_path: Path) -> None:
    recipe, table = infer(str(write(form, tmp_path)))
    assert table["task"] == "question-answering"
    assert recipe.model.architecture == "QkvEncoderForQuestionAnswering"
    data = read_questions(recipe)
    found = {
        (question, context): answers
        for split in data.texts
        for context, question, answers in zip(data.texts[split], data.pairs[split], data.labels[split], strict=True)
    }
    expected = {
        (row["question"], row["context"]): [(own["text"], own["answer_start"]) for own in row["answers"]]
        for row in ROWS
    }
    assert (
        found == expected and data.report["split"].count("'context'") + data.report["split"].count("'paragraph'") == 1
    )
    assert sum(map(len, [set(own) for own in data.texts.values()])) == 15  # none in two splits
    assert sum(data.report["unanswerable"].values()) == 15


def test_a_table_without_contexts_is_written(tmp_path: Path) -> None:
    rows = [{"question": row["question"], "answer": f"{number} books, I say"} for number, row in enumerate(ROWS)]
    assert infer(str(write_rows(tmp_path / "own.jsonl", rows)))[1]["task"] == "seq2seq"


def test_columns_may_be_named(tmp_path: Path) -> None:
    rows = [{"story": row["context"], "q": row["question"], "reply": row["answers"]} for row in ROWS]
    where = str(write_rows(tmp_path / "own.jsonl", rows))
    words = ["task=question-answering", "text.column=story", "text.pair=q", "text.label=reply"]
    assert isinstance(read_questions(infer(where, words)[0]), AnsweredQuestions)
    with raises_sentence("task=question-answering", "text.pair=question", "text.label=answers"):
        infer(where, words[:1])
    with raises_sentence("text.pair=question"):
        read_questions(recipe_of(data=where, text={"column": "story"}, architecture="QkvEncoderForQuestionAnswering"))


def test_bad_rows_are_told_and_left_out(tmp_path: Path) -> None:
    rows = [*ROWS[:7], {**ROWS[7], "answers": [{"text": "Oslo"}]}, *ROWS[8:]]
    where = str(write_rows(tmp_path / "own.jsonl", rows))
    with raises_sentence("row 8", "'Oslo'", "answer_start", "bad_records=0.02"):
        read_questions(infer(where)[0])
    data = read_questions(infer(where, ["bad_records=0.02"])[0])
    assert sum(map(len, data.texts.values())) == 59 and data.invalid_records.summary()["skipped"] == 1


@pytest.mark.parametrize("damage", [{"context": None}, {"qas": [{"id": "1"}]}])
def test_a_damaged_file_of_squad_is_told(damage: dict[str, Any], tmp_path: Path) -> None:
    value = nested(ROWS)
    value["data"][1]["paragraphs"][2] |= damage
    path = tmp_path / "own.json"
    path.write_text(json.dumps(value))
    with raises_sentence("context" if "context" in damage else "question"):
        read_questions(infer(str(path))[0])
