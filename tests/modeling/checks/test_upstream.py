"""Every private name of transformers that we stand on is known, and a release without one is refused at import."""

import builtins
import importlib
from pathlib import Path

import pytest
import torch
import transformers
import upstream
from packaging.requirements import Requirement

import installation
import qkv
import tiny
from errors import raises_sentence
from qkv.modeling import base
from qkv.modeling.checks.upstream import PRIVATE, RELEASES, check_private
from qkv.scripts.publishing.export.flatten import flatten

pytestmark = pytest.mark.upstream

CHECKED = [(owner, name) for owner, names in PRIVATE.items() for name in names.split()]


def test_each_private_name_is_checked_at_import_or_has_a_fallback():
    kinds, checked = upstream.names_by_kind(), [f"{owner}.{name}" for owner, name in CHECKED]
    assert sorted([*kinds["hooks"], *kinds["private"]]) == sorted([*checked, *upstream.FALLBACKS])
    assert all(kinds.values())


@pytest.mark.parametrize(("owner", "name"), CHECKED)
def test_a_release_without_a_name_is_refused_by_those_who_use_it(owner, name):
    names, user = dict.fromkeys(PRIVATE[owner].split()), type("Model", (), {name: None})
    check_private(type(owner, (), names), user)
    del names[name]
    lacking = type(owner, (), names)
    for given in ([lacking], [lacking, user]):
        with raises_sentence(f"{owner}.{name}", transformers.__version__, RELEASES, error=ImportError):
            check_private(*given)
    check_private(lacking, type("Model", (), {}))


def test_each_model_is_checked_for_what_it_overrides(monkeypatch):
    monkeypatch.delattr(transformers.GenerationMixin, "_prepare_decoder_input_ids_for_generation")
    type("Subclass", (qkv.QkvDecoderForCausalLM,), {})
    with raises_sentence("GenerationMixin._prepare_decoder_input_ids_for_generation", error=ImportError):
        type("Subclass", (qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq,), {})


def test_configs_are_checked_before_models(monkeypatch):
    monkeypatch.setattr(transformers, "PreTrainedConfig", type("PreTrainedConfig", (), {}))
    with raises_sentence("PreTrainedConfig._attn_implementation", error=ImportError):
        importlib.reload(importlib.import_module("qkv.modeling.checks.upstream"))


def test_a_published_copy_is_checked_as_well(monkeypatch, tmp_path: Path):
    (tmp_path / "copy_of_gpt2").mkdir()
    for name, text in flatten(tiny.decoder("gpt2")).files.items():
        (tmp_path / "copy_of_gpt2" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delattr(transformers.GenerationMixin, "_prepare_cache_for_generation")
    with raises_sentence("GenerationMixin._prepare_cache_for_generation", error=ImportError):
        importlib.import_module("copy_of_gpt2.modeling_decoder")


def test_the_named_releases_are_those_that_are_required():
    known, required = Requirement(RELEASES).specifier, next(filter(is_transformers, installation.requirements()))
    assert known.contains(transformers.__version__) and required.specifier.contains(transformers.__version__)
    assert [each for each in known if each.operator == ">="] == [
        each for each in required.specifier if each.operator == ">="
    ]


def is_transformers(requirement: Requirement) -> bool:
    return requirement.name == "transformers"


def test_without_the_mark_of_what_is_loaded_loading_keeps_it(monkeypatch, tmp_path: Path):
    def unmarked(owner, name, *default):
        return builtins.getattr(owner, name.replace("_is_hf_initialized", "_is_unknown"), *default)

    model = qkv.QkvDecoderForCausalLM(tiny.decoder("gpt2"))
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(base, "getattr", unmarked, raising=False)
    loaded = qkv.QkvDecoderForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
