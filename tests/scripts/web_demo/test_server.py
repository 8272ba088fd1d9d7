"""The page of a model: its answers are those of `qkv predict`, its attention is that of its answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gradio as gr
import pytest
from PIL import Image
from transformers import AutoTokenizer

import qkv
import stock_folders
from qkv.scripts.cli import main
from qkv.scripts.prediction.predictor import PREDICTORS, read_dialogue, read_text
from qkv.scripts.prediction.source import TASKS, open_source
from qkv.scripts.web_demo import server
from qkv.scripts.web_demo.server import SCORED, inputs_of, page_of, predict

Runs = Callable[[str], Path]
KINDS = ["numbers", "pairs", "tags", "targets", "masked", "captions", "boxes", "ctc", "speech", "folds", "proteins"]


def test_every_task_has_an_answer() -> None:
    assert {*SCORED, *server.TEXTS, *TASKS} == {*TASKS} == PREDICTORS.keys()


def test_scores_are_those_of_predict(tmp_path: Path) -> None:
    source = open_source(str(stock_folders.bert(tmp_path / "bert")))
    scores, attention = predict(source, ["text"], "warm, naïve")
    best = next(PREDICTORS[source.task](source, ["warm, naïve"], {}))
    assert scores.keys() == {"good", "bad"} and sum(scores.values()) == pytest.approx(1)
    assert max(scores.items(), key=lambda row: row[1]) == (best["prediction"], pytest.approx(best["score"]))
    assert attention == qkv.attend(tmp_path / "bert", "warm, naïve")._repr_html_()


def test_a_text_is_written_as_predict_writes_it(tmp_path: Path) -> None:
    source = open_source(str(stock_folders.gpt2(tmp_path / "gpt2")))
    greedy = predict(source, list(inputs_of(source)), "warm", 5, 0)[0]
    assert greedy == next(PREDICTORS[source.task](source, ["warm"], {"max_new_tokens": 5}))["prediction"]
    assert predict(source, list(inputs_of(source)), "warm", 5, 2)[0] != greedy, "a slider sends 2.0 as 2"


def test_a_page_is_of_this_machine_alone(tmp_path: Path) -> None:
    page = qkv.demo(str(stock_folders.bert(tmp_path / "bert")))
    try:
        assert urlsplit(page.local_url).hostname == page.server_name == "127.0.0.1"
        assert page.max_file_size == 16 * 2**20 and page.get_api_info()["named_endpoints"] == {}
    finally:
        page.close()


def test_a_drawing_is_bright_in_a_black_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(str(stock_folders.vit(tmp_path / "vit")))
    source.model.config.id2label = {0: "0", 1: "LABEL_1"}
    assert inputs_of(source).keys() == {"image", "drawing"}
    layer = Image.new("RGBA", (280, 280))
    layer.paste((0, 0, 0, 255), (50, 20, 70, 120))
    read: list[Image.Image] = []
    monkeypatch.setitem(server.READERS, "image", lambda value, *_: read.append(value) or value.convert("RGB"))
    assert predict(source, ["image", "drawing"], None, {"layers": [layer]})[0].keys() == {"0", "LABEL_1"}
    assert read[0].size == (100, 100) and read[0].getbbox() == (40, 0, 60, 100) and read[0].getpixel((50, 50)) == 255
    for nothing in (None, {"layers": []}, {"layers": [Image.new("RGBA", (9, 9))]}):
        with pytest.raises(gr.Error, match="draw"):
            predict(source, ["image", "drawing"], None, nothing)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_task_answers_as_its_component_shows_it(kind: str, run_of: Runs, runs_folder: Path) -> None:
    source, files = open_source(str(run_of(kind))), runs_folder / f"data-{kind}" / "files"
    given: dict[str, Any] = {"text": "warm dull {mask}" if kind == "masked" else "AEGKL" if kind == "proteins" else "GGAUAACCC" if kind == "folds" else "warm",
                             "pair": "dull", "labels": "warm\ndull", "threshold": 0.01, "max_new_tokens": 3,
                             "image": str(files / "0.png"), "audio": str(files / "0.wav"), "temperature": 0}  # fmt: skip
    names = list(inputs_of(source))
    answer, attention = predict(source, names, *(given[name] for name in names))
    page = page_of(source)
    label = {"targets": "target"}.get(kind, "Answer")  # the column of the data
    (component,) = [block for block in page.blocks.values() if getattr(block, "label", "") == label]
    assert component.postprocess(answer) is not None and "srcdoc" in attention
    (asked,) = [
        block.label for name, block in zip(names, inputs_of(source).values(), strict=True) if name == source.medium
    ]
    assert (
        asked
        == {"targets": "source", "text": "Text", "image": "Image", "audio": "Recording"}[
            kind if kind == "targets" else source.medium
        ]
    )


@pytest.mark.slow
def test_wrong_inputs_are_reported_and_no_file_is_read_by_a_typed_name(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("one\ntwo\n")
    captions, residues = open_source(str(run_of("captions"))), open_source(str(run_of("folds")))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(gr.Error, match="one in each line"):
        predict(captions, ["image", "labels"], str(tmp_path / "a.png"), str(tmp_path / "labels.txt"))
    with pytest.raises(gr.Error, match="upload"):
        predict(captions, ["image", "labels"], None, "one\ntwo")
    with pytest.raises(gr.Error):
        predict(residues, ["text"], "no chain")


@pytest.mark.parametrize("words", [["--port", "70000"], ["--host", "192.0.2.1", "--port", "7999"]], ids=str)
@pytest.mark.slow
def test_a_place_that_cannot_be_served_is_one_sentence(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", str(stock_folders.bert(tmp_path / "bert")), *words]) == 1
    assert "--port" in capsys.readouterr().err


def test_a_stock_model_with_a_template_chats(tmp_path: Path) -> None:
    folder = stock_folders.gpt2(tmp_path / "gpt2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'][0] + m['content'] }}{% endfor %}a"
    tokenizer.save_pretrained(folder)
    source = open_source(str(folder))
    assert isinstance(page_of(source), gr.ChatInterface)
    said = [{"role": "user", "content": "warm"}, {"role": "assistant", "content": "cold"}]
    history = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in said]
    own = read_dialogue([*said, said[0]], None, source)
    expected = next(PREDICTORS[source.task](source, [own], {"max_new_tokens": 4}))["prediction"]
    assert server.reply(source, "warm", history, 4, 0) == expected
    with pytest.raises(gr.Error, match="tokens"):
        server.reply(source, "warm " * 3000, [], 4, 0)
    assert read_text("warm", source, tmp_path) == read_dialogue("warm", None, source) == "warm", (
        "which it has not learned"
    )
