"""What a run reads of an input is what `qkv predict` reads; the rows of a film are the steps of its generation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import own_runs
import qkv
import stock_folders
from errors import raises_sentence
from families.attention_pages import data_of
from qkv.scripts.cli import main
from qkv.scripts.data.audio import write_wav
from qkv.scripts.prediction.inputs import read_input
from qkv.scripts.prediction.predictor import predictions
from qkv.scripts.prediction.source import open_source
from sine_waves import tone

Runs = Callable[[str], Path]
# Kinds of runs: options, the kind of the keys of the first stack, and its stacks.
KINDS: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "classes": ({}, "tokens", {"encoder"}),
    "pairs": ({}, "tokens", {"encoder"}),
    "tags": ({}, "tokens", {"encoder"}),
    "masked": ({}, "tokens", {"encoder"}),
    "targets": ({"max_new_tokens": 3}, "tokens", {"encoder", "decoder", "cross"}),
    "texts": ({"max_new_tokens": 3}, "tokens", {"decoder"}),
    "images": ({}, "patches", {"encoder"}),
    "captions": ({"labels": "a cat,a dog"}, "tokens", {"text", "image"}),
    "boxes": ({}, "patches", {"encoder", "decoder", "cross"}),
    "speech": ({"max_new_tokens": 3}, "frames", {"encoder", "decoder", "cross"}),
    "ctc": ({}, "frames", {"encoder"}),
    "answers": ({}, "tokens", {"encoder"}),
    "seq2seq-answers": ({}, "tokens", {"encoder", "decoder", "cross"}),
    "folds": ({"residue": 2}, "tokens", {"encoder", "starting, residue 2", "ending, residue 2"}),
    "encoder-folds": ({}, "tokens", {"encoder"}),
}
FAST = ("classes", "texts", "images")


@pytest.mark.parametrize("kind", [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_every_kind_of_run(kind: str, run_of: Runs, tmp_path: Path) -> None:
    options, keys, stacks = KINDS[kind]
    run, table = run_of(kind), own_runs.data(kind, tmp_path, 3, seed=1)
    if kind == "masked":
        table.write_text(json.dumps({"text": "warm {mask} ä"}) + "\n" * 3, encoding="utf-8")
    view = qkv.attend(run, table, row=1, **options)
    assert {stack.name for stack in view.stacks} == stacks
    assert view.stacks[0].keys.kind == keys
    assert all(len(set(stack.keys.labels)) > 1 or len(stack.keys) == 1 for stack in view.stacks)
    data = data_of(view.page()[0])
    pictures = [each["picture"] for each in data["sequences"] if each["kind"] in ("patches", "frames")]
    assert all(picture.startswith("data:image/png;base64,") for picture in pictures)
    source = open_source(str(run))
    ((_, answer), *_) = predictions(read_input(str(table), source, {}), source, dict(options))
    if kind in ("classes", "pairs", "images"):
        assert view.answer == f"Predicted: {answer['prediction']}, {answer['score']:.1%}"
    if kind in ("targets", "texts", "speech"):
        assert view.answer.removeprefix("Written: ").strip() == answer["prediction"].strip()
        assert len(view.film["steps"]) == 3 or view.film["steps"][-1]["token"] == source.tokenizer.eos_token
    if kind == "targets":
        aligned = qkv.attend(run, "warm dull", pair="great slow")
        cross = next(stack for stack in aligned.stacks if stack.name == "cross")
        assert "".join(cross.queries.labels).startswith("great") and aligned.answer == "Written: great slow"
    if kind == "folds":
        with raises_sentence("pair='GGGAAACCC'"):
            qkv.attend(run, "GGGAAACCC", pair="GGGAAACCC")


def test_the_film_has_the_tokens_of_greedy_search_and_their_probabilities(tmp_path: Path) -> None:
    folder = stock_folders.gpt2(tmp_path / "gpt2")
    view = qkv.attend(folder, "ab c", max_new_tokens=4)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("ab c", return_tensors="pt")
    made = model.generate(**inputs, max_new_tokens=4, do_sample=False, output_scores=True, return_dict_in_generate=True)
    steps = view.film["steps"]
    assert [step["row"] for step in steps] == [3, 4, 5, 6][: len(steps)]
    assert len(steps) == len(made.scores)
    for step, scores, token in zip(steps, made.scores, made.sequences[0, 4:], strict=True):
        assert step["probability"] == pytest.approx(float(scores[0].softmax(-1)[token]), abs=1e-3)
        assert step["probability"] == step["best"][0][1] and step["taken"] == 0
    # The row of a step is that of the last token before it, and its keys are those that were there.
    (stack,) = view.stacks
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(made.sequences[:, :-1], output_attentions=True).attentions
    np.testing.assert_allclose(stack.weights[0], expected[0][0].numpy(), atol=1e-5)
    assert len(stack.keys) == 4 + len(steps) - 1


def test_a_second_text_is_the_continuation_or_the_pair(tmp_path: Path) -> None:
    view = qkv.attend(stock_folders.gpt2(tmp_path / "gpt2"), "ab", pair="cd")
    assert view.stacks[0].keys.labels == ["a", "b", "c"] and view.answer == "Written: cd"
    assert [step["token"] for step in view.film["steps"]] == ["c", "d"]
    for step in view.film["steps"]:
        taken = [number for number, (label, _) in enumerate(step["best"]) if label == step["token"]]
        assert [step["taken"]] == (taken or [-1])
    view = qkv.attend(stock_folders.bert(tmp_path / "bert"), "warm", pair="dull great")
    assert view.stacks[0].keys.labels == ["[CLS]", "warm", "[SEP]", "dull", "great", "[SEP]"]


def test_whisper_begins_as_it_generates_and_its_padding_is_no_time(tmp_path: Path) -> None:
    folder = stock_folders.whisper(tmp_path / "whisper")
    (tmp_path / "a.wav").write_bytes(write_wav(tone(48, 1)))
    source = open_source(str(folder))
    ((_, answer),) = predictions(read_input(str(tmp_path / "a.wav"), source, {}), source, {"max_new_tokens": 4})
    written = qkv.attend(folder, tmp_path / "a.wav", max_new_tokens=4)
    assert written.answer == f"Written: {answer['prediction']}" and len(written.film["steps"]) == 4
    given = qkv.attend(folder, tmp_path / "a.wav", pair="ab")
    start = "<|startoftranscript|>"
    for view, text in ((written, None), (given, ["<|notimestamps|>", "a", "b", "<|endoftext|>"])):
        decoder, cross = (next(each for each in view.stacks if each.name == name) for name in ("decoder", "cross"))
        assert decoder.keys.labels[0] == start and text in (None, cross.queries.labels)
        assert cross.keys.labels[:3] == ["0.00 s", "0.02 s", "0.04 s"] and len(cross.keys) < 50


def test_mistakes_are_named(tmp_path: Path) -> None:
    folder = stock_folders.bert(tmp_path / "bert")
    with raises_sentence("row=3", "2"):
        table = tmp_path / "t.csv"
        table.write_text("text\nwarm\ndull\n")
        qkv.attend(folder, table, row=3)
    with raises_sentence("no-such.csv"):
        qkv.attend(folder, "no-such.csv")
    assert qkv.attend(folder, table, row=2).notes == ["Row 2 of 2 is shown; row= names another"]


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stock_folders.bert(tmp_path_factory.mktemp("models") / "bert")


def test_a_page_is_written_and_it_is_said_where(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["attend", str(folder), "warm dull", "great"]) == 0
    size = Path("attention.html").stat().st_size
    printed = capsys.readouterr().out
    assert f"attention.html: {size:,} bytes" in printed and "Predicted: " in printed
    page = Path("attention.html").read_text()
    assert "bert: BertForSequenceClassification" in page and str(folder) not in page
    data = data_of(page)
    assert data["sequences"][0]["labels"] == ["[CLS]", "warm", "dull", "[SEP]", "great", "[SEP]"]
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]


def test_layers_and_heads_are_words(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.html"
    assert main(["attend", str(folder), "warm " * 40, "heads=1", "layers=-1", "--out", str(out)]) == 0
    assert "qkv: The text has 42 tokens" in capsys.readouterr().err
    (stack,) = data_of(out.read_text())["stacks"]
    assert stack["heads"] == [1] and len(stack["layers"]) == 1
