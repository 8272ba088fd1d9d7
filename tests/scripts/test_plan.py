"""`qkv plan`: a table and its figures, and one sentence for what cannot be planned."""

import json
from pathlib import Path

import pytest

import qkv
from qkv.scripts.cli import main
from qkv.scripts.common.tables import scaled

SMALL = "hidden_size=32 num_hidden_layers=1 num_attention_heads=4 vocab_size=101 max_position_embeddings=32".split()


def test_a_plan_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gpt2", *SMALL, "--world-size=4", "--strategy=tp", f"--json={tmp_path / 'plan.json'}"]
    assert main(["plan", *words]) == 0
    found = json.loads((tmp_path / "plan.json").read_text())
    printed = " ".join(capsys.readouterr().out.split())
    (plan,), total = found["plans"], found["parameters"]["total"]
    assert plan["setup"]["split"] == 4 and found["example"] == {"tokens": 32} and f"{total:,}" in printed
    assert plan["plain"]["memory"]["weights"] < 4 * total


def test_sizes_have_three_digits_and_a_letter() -> None:
    sizes = {0: "0 B", 999: "999 B", 12_345: "12.3 kB", 999_700_000: "1 GB"}
    assert {size: scaled(size, "B") for size in sizes} == sizes


@pytest.mark.slow
def test_several_are_lines_of_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpt2", *SMALL, "--world-size=16,64", "--strategy=ddp,fsdp2"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    rows = [tuple(line[:2]) for line in lines if line and line[0] in ("16", "64")]
    assert rows == [(world, word) for word in ("ddp", "fsdp2") for world in ("16", "64")]
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            "digits model.num_hidden_layers=1 accumulate=2 --world-size=4",
            "4 x 8 x 8 pixels each in 2 micro-batches, fp32",
        ),
        (
            "spoken-digits architecture=QkvAudioEncoderForCTC model.num_hidden_layers=1 --world-size=2,4 --batch=8",
            "8 x 200 frames, 25 tokens each, fp32",
        ),
    ],
)
def test_a_recipe_is_planned_with_its_own_batch(words: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words.split()]) == 0
    assert part in " ".join(capsys.readouterr().out.split())


def test_the_config_of_a_folder_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = qkv.presets.bert_base(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=101)
    config.architectures = ["QkvEncoderForMaskedLM"]
    config.save_pretrained(tmp_path)
    for subject in (["docs-mlm", f"init={tmp_path}"], [str(tmp_path)]):
        assert main(["plan", *subject, "--length=16"]) == 0
        assert f"{qkv.QkvEncoderForMaskedLM(config).num_parameters():,}" in capsys.readouterr().out
