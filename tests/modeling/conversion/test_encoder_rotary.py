"""What is peculiar to the table of ModernBERT."""

from pathlib import Path

import pytest

import qkv
from families import variant
from families.inputs import END, START
from qkv.modeling.conversion.config import their_layers
from qkv.modeling.conversion.encoder_rotary import their_rope

ROPE = {
    "full": {"rope_type": "default", "rope_theta": 1000.0},
    "sliding": {"rope_type": "default", "rope_theta": 10.0},
}


def test_each_layer_type_has_a_window_and_a_base_of_its_own() -> None:
    ours = qkv.from_transformers(variant("modernbert", "Model", "").build()).config
    assert ours.layer_patterns == ["full", "sliding", "full"]
    assert (ours.sliding_window, ours.rope_parameters) == (3, ROPE)


@pytest.mark.parametrize("width", [0, 2, 128])
def test_a_window_counts_both_sides_there_and_one_side_and_the_token_here(width: int) -> None:
    official = variant("modernbert", "Model", "", local_attention=width).build()
    ours = qkv.from_transformers(official)
    assert ours.config.sliding_window == width // 2 + 1
    assert qkv.to_transformers(ours).config.local_attention == width


def test_the_interval_of_old_configs_is_read_from_the_layers() -> None:
    official = variant("modernbert", "Model", "", global_attn_every_n_layers=3).build()
    back = qkv.to_transformers(qkv.from_transformers(official)).config
    assert back.layer_types == ["full_attention", "sliding_attention", "sliding_attention"]


def test_ids_for_the_tokenizer_are_carried_along(tmp_path: Path) -> None:
    qkv.from_transformers(variant("modernbert", "Model", "").build()).save_pretrained(tmp_path)
    ours = qkv.QkvEncoderModel.from_pretrained(tmp_path)
    back = qkv.to_transformers(ours).config
    assert (
        (back.cls_token_id, back.sep_token_id) == (ours.config.cls_token_id, ours.config.sep_token_id) == (START, END)
    )


def test_one_set_of_rope_parameters_is_that_of_each_type() -> None:
    one = ROPE["full"]
    assert their_rope(one, {}) == {"full_attention": one, "sliding_attention": one}
    assert their_rope(None, {}) == {}


def test_one_pattern_is_that_of_each_layer() -> None:
    assert their_layers("sliding", {"num_hidden_layers": 2}) == ["sliding_attention"] * 2
    assert their_layers(["full", "block_sparse"], {}) == ["full_attention"] * 2
