"""Loading for verification: the right class by the right name."""

import json
from pathlib import Path

import pytest
import transformers
from transformers import PreTrainedModel

import qkv
import tiny
from published import ours
from qkv.scripts.publishing.integrity.loading import UNCHECKED, auto_class, installed_class, load_unchecked

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_every_head_of_ours_has_its_auto_class(case: tiny.Case, tmp_path: Path) -> None:
    config, name = case.config(), case.model_class.__name__
    config.architectures = [name]
    config.save_pretrained(tmp_path)
    assert installed_class(tmp_path) is case.model_class and auto_class(config.to_dict(), name) == case.auto_class


@pytest.mark.parametrize(
    ("model_type", "architecture", "expected"),
    [
        ("gpt2", "GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("t5", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
        ("deit", "DeiTForImageClassificationWithTeacher", "AutoModelForImageClassification"),
        ("bert", "BertForPreTraining", "AutoModelForPreTraining"),
        ("bert", "BertForNextSentencePrediction", "AutoModelForNextSentencePrediction"),
        ("bert", "BertModel", "AutoModel"),
    ],
)
def test_so_have_those_of_transformers(model_type: str, architecture: str, expected: str, tmp_path: Path) -> None:
    config = {"model_type": model_type, "architectures": [architecture]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert auto_class(config, architecture) == expected
    assert installed_class(tmp_path) is getattr(transformers, architecture)


def test_what_nobody_knows_has_none(tmp_path: Path) -> None:
    config = {"model_type": "mine", "architectures": ["Mine"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert installed_class(tmp_path) is None and auto_class(config, "Mine") is None
    assert auto_class({**config, "auto_map": {"AutoModel": "modeling_mine.Mine"}}, "Mine") == "AutoModel"


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
