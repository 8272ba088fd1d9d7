"""Papers as configs: the numbers of their tables, and any field as a difference."""

import inspect
from typing import Any

import pytest
import torch

import qkv
import tables
from qkv import presets

NAMES = (
    "bart_base bert_base bert_large bigbird_base clip_vit_b32 dalle deit_small_16 detr_r50 esm2_t6_8m evoformer_small "
    "gpt2 gpt2_large gpt2_medium gpt2_xl llama_3_2_1b longformer_base rnnsearch_50 roberta_base speech_transformer_s "
    "t5_base t5_small transformer_base transformer_big vit_base_16 vit_large_16 whisper_base whisper_small whisper_tiny"
).split()
TABLES = tables.beside(__file__)
each_preset = pytest.mark.parametrize("name", NAMES)


def preset(name: str, **differences: Any) -> Any:
    return getattr(presets, name)(**differences)


def test_names_are_the_functions() -> None:
    assert presets.names() == NAMES == sorted(TABLES["values"])


@each_preset
def test_values_are_those_of_the_paper(name: str) -> None:
    config = preset(name)
    sizes, rest = TABLES["values"][name]
    for name in config.sub_configs or [""]:
        part = getattr(config, name, config)
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        width = [getattr(part, field, 0) for field in names]
        assert width == (sizes[name] if isinstance(sizes, dict) else sizes)
        assert {field: getattr(part, field) for field in rest if hasattr(part, field)} == {
            field: value for field, value in rest.items() if hasattr(part, field)
        }


def test_values_that_only_speech_models_have() -> None:
    small = preset("speech_transformer_s")
    assert (small.encoder.num_hidden_layers, small.decoder.num_hidden_layers) == (12, 6)
    assert preset("whisper_tiny").transcription == "long_form" and small.transcription == "short_form"
    tiny = preset("whisper_tiny", encoder={"apply_spec_augment": True}, decoder={"layerdrop": 0.1})
    assert (tiny.max_source_positions, tiny.max_target_positions, tiny.decoder_layers) == (1500, 448, 4)
    assert tiny.encoder.apply_spec_augment and tiny.decoder.layerdrop == 0.1


@pytest.mark.parametrize(("head", "name", "fields", "count"), TABLES["parameters"])
def test_the_number_of_parameters_is_the_papers(head: str, name: str, fields: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        assert getattr(qkv, head)(preset(name, **fields)).num_parameters() == count


def test_values_that_only_the_whole_has() -> None:
    assert preset("transformer_base").label_smoothing == 0.1
    assert (preset("bart_base").decoder_start_token_id, preset("bart_base").eos_token_id) == (2, 2)
    assert preset("t5_small").decoder.scale_logits
    rope = preset("llama_3_2_1b").rope_parameters
    assert (rope["rope_type"], rope["factor"], rope["rope_theta"]) == ("llama3", 32.0, 5e5)


@each_preset
def test_any_field_may_differ_and_nothing_else_changes(name: str) -> None:
    field = "label_smoothing" if name == "rnnsearch_50" else "norm_eps"  # the one without norms
    plain, other = preset(name), preset(name, **{field: 1e-3})
    for part in plain.sub_configs or [None]:
        ours, theirs = ((getattr(config, part) if part else config).to_dict() for config in (plain, other))
        assert {name for name in ours if ours[name] != theirs[name]} == {field}


def test_the_example_of_the_guide() -> None:
    config = presets.bert_base(position="rope", norm_first=True)
    assert (config.position, config.norm_first, config.final_norm) == ("rope", True, True)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
    assert config.embedding_norm  # a difference changes what it names


@each_preset
def test_two_calls_share_nothing(name: str) -> None:
    first, second = preset(name), preset(name)
    assert first.to_dict() == second.to_dict()
    assert first.auto_map is not second.auto_map
    assert getattr(first, "rope_parameters", None) is None or first.rope_parameters is not second.rope_parameters


@each_preset
def test_each_names_its_paper_and_is_short(name: str) -> None:
    function = getattr(presets, name)
    lines = inspect.getsource(function).splitlines()
    assert any(year in function.__doc__ for year in ("2015", "2017", "2019", "2020", "2021", "2023", "2024"))
    assert len(lines) <= 12
