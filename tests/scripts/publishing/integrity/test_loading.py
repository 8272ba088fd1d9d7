"""Loading for verification: the right class by the right name."""

import json
from pathlib import Path

import pytest
import transformers
from transformers import PreTrainedModel

import qkv
import tiny
from families import variant
from published import ours
from qkv.scripts.publishing.integrity.loading import UNCHECKED, auto_class, installed_class, load_unchecked


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


def test_loads_of_verification_are_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = ours(), []
    model.save_pretrained(tmp_path)
    original = qkv.QkvDecoderForCausalLM.__init__

    def watch(self: PreTrainedModel, *arguments: object, **options: object) -> None:
        seen.append(UNCHECKED.get())
        original(self, *arguments, **options)

    monkeypatch.setattr(qkv.QkvDecoderForCausalLM, "__init__", watch)
    load_unchecked(qkv.QkvDecoderForCausalLM, tmp_path)
    qkv.QkvDecoderForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(OSError):
        load_unchecked(qkv.QkvDecoderForCausalLM, tmp_path / "nowhere")
    assert seen == [True, False] and not UNCHECKED.get()
