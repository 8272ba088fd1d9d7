"""Reports: sources, statuses, programs that run, pytest, remote code."""

import json
import re
from pathlib import Path
from typing import Any

import planted
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, LlamaPreTrainedModel

import qkv
from errors import raises_sentence
from qkv.scripts.cli import main
from qkv.scripts.conformance import use_checks
from qkv.scripts.conformance.report import CHECKS, conform
from qkv.scripts.conformance.subject import Subject, small_config

PAGE = Path(__file__).parents[3] / "docs" / "conform.md"
BERT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


def status(source: Any, check: str, config: Any = None, **options: Any) -> str:
    return conform(source, config, only=[check], **options).rows[0].status


def test_known_faults_of_stock_are_found_and_shown() -> None:
    report = conform("BertForMaskedLM", BertConfig(**BERT), only=["accumulation", "causal"])
    assert {row.check: row.status for row in report.rows} == {"causal": "–", "accumulation": "FAILED"}
    (failure,) = report.failures
    assert f"\n# accumulation\n{failure.program}" in str(report)


def test_a_program_shows_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    program = conform(BertForMaskedLM, BertConfig(**BERT), only=["accumulation"]).failures[0].program
    try:
        exec(compile(program, "program", "exec"), {})
    finally:
        torch.set_grad_enabled(True)
    first, second = re.findall(r"tensor\(([\d.]+)\)", capsys.readouterr().out)
    assert first == second  # num_items_in_batch is ignored


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("model", [LlamaForCausalLM, BertForMaskedLM])
def test_every_program_runs(model: Any, check: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    subject = Subject(model)
    try:
        if subject.kind in CHECKS[check].kinds:
            exec(compile(CHECKS[check].program_for(subject), check, "exec"), {})
    finally:
        torch.set_grad_enabled(True)
        torch.compiler.set_stance("default")


def test_keywords_that_vanish_are_a_limit_and_refused_ones_pass() -> None:
    class Strict(LlamaForCausalLM):
        def forward(self, input_ids: Any = None, attention_mask: Any = None) -> Any:
            return super().forward(input_ids, attention_mask)

    config = LlamaConfig(**planted.SIZES)
    assert status(LlamaForCausalLM, "unknown_keyword", config) == "limit"
    assert status(Strict, "unknown_keyword", config) == "passed"


def test_expected_failures_are_limits_and_their_passing_is_a_failure() -> None:
    known = {"accumulation": "issue 1", "batch": "issue 2"}
    rows = conform(BertForMaskedLM, BertConfig(**BERT), only=[*known], expected=known).rows
    assert {row.check: row.status for row in rows} == {"accumulation": "limit", "batch": "FAILED"}


def test_a_model_keeps_its_weights_and_names_behind_args_are_found() -> None:
    class Wrapped(BertForMaskedLM):
        def forward(self, *args: Any, **keywords: Any) -> Any:
            return super().forward(*args, **keywords)

    model = Wrapped(BertConfig(**BERT))
    subject = Subject(model)
    assert torch.equal(subject.model.state_dict()["cls.predictions.bias"], model.state_dict()["cls.predictions.bias"])
    assert {"inputs_embeds", "labels"} <= subject.names


def test_names_of_a_model_behind_another_are_found() -> None:
    class Around(LlamaPreTrainedModel):
        def __init__(self, config: LlamaConfig) -> None:
            super().__init__(config)
            self.inner = LlamaForCausalLM(config)
            self.post_init()

        def forward(self, *args: Any, **keywords: Any) -> Any:
            return self.inner(*args, **keywords)

    config = LlamaConfig(**planted.SIZES)
    rows = conform(Around, config, only=["masked_content", "padding", "reload"]).rows
    assert [row.status for row in rows] == ["passed"] * 3


def test_pictures_are_tokens_of_a_text() -> None:
    subject = Subject("LlavaForConditionalGeneration")
    token, length = subject.config.image_token_id, subject.image_length
    batch, text = subject.batch(), subject.batch(1, 3)
    assert length == 4 and (batch["input_ids"] == token).sum(1).tolist() == [4, 4]
    assert batch["pixel_values"].shape == (2, 3, 32, 32) and text.keys() == {"input_ids"}
    assert {CHECKS[name].outcome(subject)[0] for name in ("causal", "padding", "cache_steps")} == {"passed"}
    status, _ = CHECKS["label_smoothing"].outcome(subject)  # Trainer knows no shift for it
    assert status == "FAILED" and "config.image_token_id" in CHECKS["label_smoothing"].program_for(subject)


def test_configurations_are_shrunk() -> None:
    config = small_config(LlamaForCausalLM)
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (32, 2, 99)
    assert small_config(qkv.QkvDecoderForCausalLM).hidden_size == 32


def test_a_test_is_parametrized() -> None:
    config = LlamaConfig(**planted.SIZES)
    mark = qkv.parametrize_with_checks([(LlamaForCausalLM, config)], expected=lambda _: {"batch": "issue"})
    names, cases = mark.mark.args
    assert names == ("subject", "check") and len(cases) == len(CHECKS)
    assert [case.id for case in cases if case.marks] == ["LlamaForCausalLM-batch"]
    subject, check = next(case.values for case in cases if case.id == "LlamaForCausalLM-stateless")
    check(subject)
    fault = next(fault for fault in planted.FAULTS if fault.check == "padding")
    with pytest.raises(RuntimeError, match="padding"):
        CHECKS["padding"](Subject(fault.model_class, fault.config()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with its code."""
    BertForMaskedLM(BertConfig(**BERT)).save_pretrained(tmp_path / "model")
    code = "from transformers import BertForMaskedLM\n\n\nclass Own(BertForMaskedLM):\n    pass\n"
    (tmp_path / "model" / "own.py").write_text(code)
    path = tmp_path / "model" / "config.json"
    fields = json.loads(path.read_text()) | {"architectures": ["Own"], "auto_map": {"AutoModelForMaskedLM": "own.Own"}}
    path.write_text(json.dumps(fields))
    return tmp_path / "model"


def test_remote_code_needs_leave(folder: Path) -> None:
    with raises_sentence("--trust-remote-code", str(folder)):
        conform(str(folder))
    with raises_sentence("inputs="):
        conform(str(folder), inputs=lambda *sizes: {}, trust_remote_code=True)


@pytest.mark.slow  # a process that imports transformers
def test_remote_code_runs_when_it_is_allowed(folder: Path) -> None:
    report = conform(str(folder), only=["stateless", "accumulation"], trust_remote_code=True, weights=True)
    assert (report.model, [row.status for row in report.rows]) == ("Own", ["passed", "FAILED"])


def test_the_command_prints_writes_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    words = ["conform", "BertForMaskedLM", "--only", "accumulation", "--only", "stateless"]
    assert main([*words, "--json", str(target)]) == 1
    rows = json.loads(target.read_text())["rows"]
    assert [(row["check"], row["status"]) for row in rows] == [("stateless", "passed"), ("accumulation", "FAILED")]
    printed = capsys.readouterr()
    assert "# accumulation" in printed.out and "1 of 2" in printed.err
    assert main([*words, "--skip", "accumulation"]) == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["BertForMaskedLN"], "BertForMaskedLN"),
        (["nowhere.module:Model"], "nowhere.module:Model"),
        (["BertForMaskedLM", "--only", "casual"], "'causal'"),
        (["BertForMaskedLM", "--json", "nowhere/report.json"], "nowhere"),
        (["BertConfig"], "BertConfig"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", *words]) == 1
    assert part in capsys.readouterr().err


def test_checks_of_missing_packages_step_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_checks, "is_peft_available", lambda: False)
    row = conform(LlamaForCausalLM, LlamaConfig(**planted.SIZES), only=["lora"]).rows[0]
    assert (row.status, row.reason) == ("–", "peft is not installed")


def test_the_page_explains_every_check() -> None:
    rows = re.findall(r"^\| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == ["check", *CHECKS]
