"""`qkv show`: a tree within the terminal, sums, the figure and the JSON."""

import json
from pathlib import Path

import pytest

from qkv.scripts.cli import main

SMALL = "hidden_size=32 num_hidden_layers=2 num_attention_heads=4 vocab_size=101 max_position_embeddings=32".split()


def test_a_model_is_shown_drawn_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    assert main(["show", "gpt2", *SMALL, "--out", "gpt2.svg", "--json", "gpt2.json"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "gpt2: QkvDecoderForCausalLM" in printed and "layers.0-1 x 2" in printed and "32 tokens" in printed
    written = json.loads(Path("gpt2.json").read_text())
    total = written["parameters"]["total"]
    assert f"{total:,}, of which" in printed and written["memory"]["weights"]["fp32"] == 4 * total
    assert written["memory"]["a cached token"]["bf16"] == 2 * 2 * 2 * 32
    assert written["memory"]["training"]["optimizer"] >= 8 * total and written["tree"]["parameters"] == total
    assert Path("gpt2.svg").read_text().startswith("<svg")


# All sizes that are long to write are as they are; two layers are one line, as twelve are.
@pytest.mark.parametrize(
    ("source", "shorter"),
    {
        **dict.fromkeys(("bert_base", "t5_small", "vit_base_16", "detr_r50"), ["num_hidden_layers=2"]),
        "clip_vit_b32": [],
        "rnnsearch_50": ["--length", "10"],
    }.items(),
)
def test_every_family_is_within_the_terminal(
    source: str, shorter: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", source, *shorter]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and not any("…" in line for line in lines)


def test_the_tree_ends_where_it_shall(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpt2", *SMALL, "--depth", "1", "--length", "8"]) == 0
    printed = capsys.readouterr().out
    assert "lm_head" in printed and "layers.0" not in printed and "8 tokens" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gpt2 --out=a.png", "--out=a.png must end in .svg, as the model is drawn in that format"),
        ("gpt2 --depth=0", "--depth=0 must be at least 1"),
        ("gpt2 --length=2000", "--length=2000 is more than max_position_embeddings=1024; change one of them"),
        ("bert_bas", "'bert_bas' is no preset, recipe or folder; did you mean 'bert_base'?"),
    ],
)
def test_a_mistake_is_one_sentence(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", *words.split()]) == 1
    assert capsys.readouterr().err == f"qkv: {message}\n"
