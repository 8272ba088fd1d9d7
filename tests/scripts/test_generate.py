"""`qkv generate`: the tokens of the model's own greedy decoding, a seed for what is drawn, tables in and out."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import stock_folders
from qkv.scripts.cli import main
from qkv.scripts.common.phases import say_once

Runs = Callable[[str], Path]
PROMPT = "warm naïve façade"


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The standard output of a command that succeeds."""
    capsys.readouterr()
    assert main(["generate", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("stock", [False, True])
def test_a_text_is_that_of_greedy_decoding(
    run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, stock: bool
) -> None:
    folder = stock_folders.gpt2(tmp_path) if stock else run_of("texts")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    tokens = model.generate(**inputs, max_new_tokens=5, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    expected = PROMPT + tokenizer.decode(tokens, skip_special_tokens=True)
    assert printed([str(folder), PROMPT, "max_new_tokens=5"], capsys) == f"{expected}\n"


def test_on_a_terminal_it_is_written_as_it_comes(
    run_of: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [str(run_of("texts")), PROMPT, "max_new_tokens=5"]
    whole = printed(words, capsys)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert printed(words, capsys).strip() == whole.strip()


def test_what_is_drawn_follows_from_the_seed(run_of: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(run_of("texts")), PROMPT, "max_new_tokens=6", "temperature=2", "--seed"]
    texts = [printed([*words, seed], capsys) for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_rows_of_a_table_are_those_of_single_prompts(
    run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, prompts = run_of("texts"), [PROMPT, "dull", "great slow poor bright"]
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f"0{i},{p}\n" for i, p in enumerate(prompts)))
    words = [str(run), str(tmp_path / "a.csv"), "max_new_tokens=4", "--out", str(tmp_path / "b.jsonl")]
    assert main(["generate", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text(encoding="utf-8").splitlines()]
    alone = [printed([str(run), prompt, "max_new_tokens=4"], capsys) for prompt in prompts]
    assert [f"{row['text']}{row['prediction']}\n" for row in rows] == alone
    assert [row["id"] for row in rows] == ["00", "01", "02"]


def test_a_long_prompt_is_continued_at_its_end(run_of: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run, prompt = run_of("texts"), "warm naïve great slow " * 60 + "dull"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(run), AutoTokenizer.from_pretrained(run)
    most = model.config.max_position_embeddings - 4
    last = torch.tensor([tokenizer(prompt, verbose=False)["input_ids"][-most:]])
    expected = tokenizer.decode(model.generate(last, max_new_tokens=4, do_sample=False)[0, most:])
    capsys.readouterr()
    say_once.cache_clear()
    assert main(["generate", str(run), prompt, "max_new_tokens=4"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{prompt}{expected}\n" and f"{most:,}" in said.err
