"""The ways of loading: the right class by the right name, and a process that has no qkv and says why it failed."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers import PreTrainedModel

import qkv
import tiny
from families import variant
from published import ours
from qkv.scripts.publishing.integrity import loading
from qkv.scripts.publishing.integrity.loading import (
    OWN_LOAD,
    auto_class,
    installed_class,
    load,
    loaded,
    loaded_elsewhere,
)


@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_every_head_of_ours_has_its_auto_class(case: tiny.Case, tmp_path: Path) -> None:
    config = case.config()
    config.architectures = [case.model_class.__name__]
    config.save_pretrained(tmp_path)
    assert installed_class(tmp_path) is case.model_class and auto_class(tmp_path) == case.auto_class


@pytest.mark.parametrize("names", [("bert", "ForMaskedLM"), ("t5", "ForConditionalGeneration"), ("vit", "Model")])
def test_so_have_those_of_transformers(names: tuple[str, str], tmp_path: Path) -> None:
    model = variant(*names, "").build()
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(tmp_path)
    found = getattr(transformers, auto_class(tmp_path) or "")
    assert type(found.from_config(model.config)) is type(model) is installed_class(tmp_path)


def test_what_nobody_knows_has_none(tmp_path: Path) -> None:
    config = {"model_type": "mine", "architectures": ["Mine"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert installed_class(tmp_path) is None and auto_class(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling_mine.Mine"}}))
    assert auto_class(tmp_path) == "AutoModel"


def test_our_own_loads_are_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = ours(), []
    model.save_pretrained(tmp_path)
    original = qkv.QkvDecoderForCausalLM.__init__

    def watch(self: PreTrainedModel, *arguments: object, **options: object) -> None:
        seen.append(OWN_LOAD.get())
        original(self, *arguments, **options)

    monkeypatch.setattr(qkv.QkvDecoderForCausalLM, "__init__", watch)
    load(qkv.QkvDecoderForCausalLM, tmp_path)
    qkv.QkvDecoderForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(OSError):
        load(qkv.QkvDecoderForCausalLM, tmp_path / "nowhere")
    assert seen == [True, False] and not OWN_LOAD.get()


def test_a_load_answers_what_it_is_asked(tmp_path: Path) -> None:
    model, inputs = ours(), {"input_ids": torch.arange(8)[None] + 4}
    model.save_pretrained(tmp_path)
    found = loaded(qkv.QkvDecoderForCausalLM, tmp_path, inputs)
    assert torch.equal(found.answers["logits"], model(**inputs).logits)
    assert loaded(qkv.QkvDecoderForCausalLM, tmp_path).answers == {}


def test_the_last_words_of_the_process_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.py"
    monkeypatch.setattr(loading, "INSPECTOR", broken)
    for text, words in (
        ("raise SystemExit('no such luck')", "no such luck"),
        ("raise SystemExit(1)", "without a word"),
    ):
        broken.write_text(text)
        with pytest.raises(RuntimeError, match=words):
            loaded_elsewhere(tmp_path, "AutoModel", None, [{}])


def test_the_process_is_given_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the real one loads a model with it: tests/scripts/test_verify.py."""
    echo = tmp_path / "echo.py"
    echo.write_text(
        "import json, sys\norder = json.load(sys.stdin)\n"
        "json.dump([job | {'inputs': order['inputs']} for job in order['jobs']], open(order['report'], 'w'))"
    )
    monkeypatch.setattr(loading, "INSPECTOR", echo)
    monkeypatch.chdir(tmp_path)
    options = [{}, {"dtype": "bfloat16"}]
    found = loaded_elsewhere(Path("hub"), "AutoModel", {"x": torch.ones(2, 3).t()}, options)
    assert [each.report["options"] for each in found] == options and found[0].answers == {}
    assert found[0].report["folder"] == str(tmp_path / "hub") and found[0].report["inputs"]
    assert not loaded_elsewhere(Path("hub"), "AutoModel", None, [{}])[0].report["inputs"]
