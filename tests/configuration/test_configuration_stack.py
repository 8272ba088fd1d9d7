"""A stack's own fields: feed-forward, norms, dropout, and how to split it over devices."""

from fnmatch import fnmatch

import pytest
import torch

from qkv import QkvDecoderConfig, QkvDecoderModel, QkvEncoderConfig, QkvEncoderDecoderConfig, QkvEncoderDecoderModel
from qkv.configuration.configuration_stack import StackConfig

SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}


def test_inner_width_is_four_times_the_width_unless_given() -> None:
    assert QkvEncoderConfig(**SMALL).intermediate_size == 32
    assert QkvEncoderConfig(**SMALL, intermediate_size=5).intermediate_size == 5


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_stack_ends_with_a_norm_when_its_branches_begin_with_one(norm_first: bool) -> None:
    assert QkvEncoderConfig(norm_first=norm_first).final_norm is norm_first
    assert QkvEncoderConfig(norm_first=norm_first, final_norm=not norm_first).final_norm is not norm_first


@pytest.mark.parametrize(
    ("config", "model_class"),
    [
        (QkvDecoderConfig(**SMALL, feed_forward="glu", query_key_norm=True), QkvDecoderModel),
        (QkvEncoderDecoderConfig(**SMALL, feed_forward="glu", query_key_norm=True), QkvEncoderDecoderModel),
    ],
)
def test_plan_over_devices_splits_every_matrix_and_keeps_the_norms_of_heads_whole(
    config: StackConfig, model_class: type
) -> None:
    with torch.device("meta"):
        model = model_class(config)
    linears = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    norms = [name for name, _ in model.named_modules() if name.endswith(("q_norm", "k_norm"))]
    for name in linears + norms:
        styles = [style for key, style in config.base_model_tp_plan.items() if fnmatch(name, key)]
        narrowing = name.endswith(("o_proj", "down_proj"))
        # Each device normalises its own heads with the same gain, whose gradient they add up.
        whole = "replicated_with_grad_allreduce" if name in norms else None
        assert styles == [whole or ("rowwise" if narrowing else "colwise")], name
    assert all(any(fnmatch(name, key) for name in linears + norms) for key in config.base_model_tp_plan)


def test_plan_over_devices_names_what_there_is_and_leaves_biased_attention_whole() -> None:
    plain = QkvDecoderConfig(**SMALL).base_model_tp_plan
    assert not any("gate_proj" in key or "norm" in key for key in plain)
    biased = QkvEncoderDecoderConfig(**SMALL, position="t5").base_model_tp_plan
    assert {key.split(".")[3] for key in biased} == {"cross_attn", "mlp"}
    assert "base_model_tp_plan" not in QkvDecoderConfig(**SMALL).to_dict()
