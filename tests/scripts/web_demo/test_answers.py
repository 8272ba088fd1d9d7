"""Answers of the page are those of `qkv predict`."""

from collections.abc import Callable
from pathlib import Path

import pytest

import stock_folders
from qkv.scripts.attention_view.inputs import READERS
from qkv.scripts.attention_view.view import view_of
from qkv.scripts.prediction.predictor import PREDICTORS
from qkv.scripts.prediction.source import TASKS, open_source
from qkv.scripts.web_demo.answers import ANSWERS, WRITING, answer
from qkv.scripts.web_demo.requests import RefusedError

Runs = Callable[[str], Path]


def test_every_task_has_a_page() -> None:
    assert ANSWERS.keys() | set(WRITING) == READERS.keys() == TASKS.keys() == PREDICTORS.keys()


def test_scores_are_those_of_predict(tmp_path: Path) -> None:
    source = open_source(str(stock_folders.bert(tmp_path / "bert")))
    scores = answer(source, {"text": "warm, naïve"})[0]["scores"]
    best = next(PREDICTORS[source.task](source, ["warm, naïve"], {}))
    assert scores[0] == {"label": best["prediction"], "score": pytest.approx(best["score"])}
    assert {row["label"] for row in scores} == {"good", "bad"}
    assert sum(row["score"] for row in scores) == pytest.approx(1)


def test_the_tokens_that_were_drawn_are_those_of_the_view(tmp_path: Path) -> None:
    source = open_source(str(stock_folders.gpt2(tmp_path / "gpt2")))
    written = answer(source, {"text": "warm", "options": {"max_new_tokens": 5}})[0]["text"]
    assert written == next(PREDICTORS[source.task](source, ["warm"], {"max_new_tokens": 5}))["prediction"]
    made, reading = answer(source, {"text": "warm", "options": {"max_new_tokens": 5, "temperature": 5}})
    view = view_of("", reading, None, None)
    assert made["text"] != written and view.answer == f"Written: {made['text']}"


@pytest.mark.slow
def test_words_have_their_tags(run_of: Runs) -> None:
    source = open_source(str(run_of("tags")))
    entities = answer(source, {"text": '["warm", "dull"]'})[0]["entities"]
    assert [entity["text"] for entity in entities] == ["warm", "dull"]


@pytest.mark.slow
def test_residues_in_contact_are_named(run_of: Runs) -> None:
    source = open_source(str(run_of("folds")))
    scores = answer(source, {"text": "GGAUAACCC"})[0]["scores"]
    best = next(PREDICTORS[source.task](source, ["GGAUAACCC"], {"threshold": 0}))["prediction"][0]
    assert scores[0]["label"] == f"{'GGAUAACCC'[best['i']]}{best['i']} {'GGAUAACCC'[best['j']]}{best['j']}"
    assert len(scores) == 9


@pytest.mark.slow
def test_of_a_pair_both_are_needed(run_of: Runs) -> None:
    source = open_source(str(run_of("pairs")))
    with pytest.raises(RefusedError, match="the second text is empty"):
        answer(source, {"text": "warm"})
    one, other = (answer(source, {"text": "warm", "pair": pair})[0] for pair in ("dull", "bright poor"))
    assert one != other


@pytest.mark.slow
def test_no_file_is_read_by_its_name(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("one\ntwo\n")
    source = open_source(str(run_of("captions")))
    with pytest.raises(RefusedError, match="there is no file"):
        answer(source, {"labels": str(tmp_path / "labels.txt"), "file": {"path": str(tmp_path / "labels.txt")}})
