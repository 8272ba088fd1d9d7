"""Presets have the numbers of their papers' tables, name the paper, and take any field as a difference."""

from typing import Any

import pytest
import torch

import qkv
import tables
from qkv import presets


def preset(name: str, **differences: Any) -> Any:
    return getattr(presets, name)(**differences)


@pytest.mark.parametrize(("head", "name", "fields", "count"), tables.beside(__file__))
@pytest.mark.costly(18)
def test_the_number_of_parameters_is_the_papers(head: str, name: str, fields: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        assert getattr(qkv, head)(preset(name, **fields)).num_parameters() == count


@pytest.mark.parametrize("name", presets.names())
def test_any_field_may_differ_and_nothing_else_changes(name: str) -> None:
    assert any(f" {year}," in getattr(presets, name).__doc__ for year in range(2015, 2026))
    field = "label_smoothing" if name == "rnnsearch_50" else "norm_eps"  # the one without norms
    plain, other = preset(name), preset(name, **{field: 1e-3})
    assert plain.to_dict() == preset(name).to_dict() and plain.auto_map is not other.auto_map
    for part in plain.sub_configs or [None]:
        ours, theirs = ((getattr(config, part) if part else config).to_dict() for config in (plain, other))
        assert {name for name in ours if ours[name] != theirs[name]} == {field}


def test_a_difference_changes_what_it_names() -> None:
    config = presets.bert_base(position="rope", norm_position="before")
    assert (config.position, config.norm_first, config.final_norm, config.embedding_norm) == ("rope", True, True, True)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
    pair = presets.clip_vit_b32(hidden_act="gelu", hidden_size=64, vision_config={"hidden_size": 96})
    text, vision = pair.text_config, pair.vision_config
    assert (text.hidden_act, vision.hidden_act, text.hidden_size, vision.hidden_size) == ("gelu", "gelu", 64, 96)
    assert (vision.image_size, vision.patch_size, vision.patch_bias) == (224, 32, False)
