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
each_preset = pytest.mark.parametrize("name", NAMES)


def preset(name: str, **differences: Any) -> Any:
    return getattr(presets, name)(**differences)


def test_names_are_the_functions() -> None:
    assert presets.names() == NAMES


@pytest.mark.parametrize(("head", "name", "fields", "count"), tables.beside(__file__))
def test_the_number_of_parameters_is_the_papers(head: str, name: str, fields: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        assert getattr(qkv, head)(preset(name, **fields)).num_parameters() == count


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
