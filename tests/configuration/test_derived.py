"""Values that follow from the fields that were set."""

from fnmatch import fnmatch
from typing import Any

import pytest
import torch

import qkv
import tables
import tiny
from comparison import PAIR, decoder
from qkv import QkvDecoderConfig, QkvPairConfig
from qkv.configuration.axes import STATE_KERNELS

SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}
FAR = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}

FOLLOWS = [(getattr(qkv, name), *row) for name, rows in tables.beside(__file__).items() for row in rows]


@pytest.mark.parametrize(("config_class", "fields", "expected"), FOLLOWS, ids=lambda value: str(value)[:70])
def test_values_follow(config_class: type, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    config = config_class(**fields)
    values = {name: getattr(config, name) for name in expected}
    assert {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()} == expected
    # What is derived by a property or constant is not saved.
    derived = {name for name in expected if name not in config_class.known_fields() | {"num_labels"}}
    assert not derived & {*config.to_dict()}


def test_a_cache_forgets_where_no_token_is_global() -> None:
    window = {"pattern": "sliding", "sliding_window": 3, "num_hidden_layers": 1}
    assert decoder(**window).layer_types == ["sliding_attention"] and decoder(**window).window_of(0) == 3
    for kept in ({"num_global_tokens": 1}, {"pattern": "dilated"}):
        config = decoder(**{**window, **kept})
        assert config.layer_types == ["full_attention"] and config.window_of(0) is None


def test_rope_may_differ_by_pattern() -> None:
    fields = {"position": "rope", "pattern": ["full", "sliding"], "num_hidden_layers": 2, "sliding_window": 3}
    near = {"rope_theta": 10.0}
    config = QkvDecoderConfig(**fields, rope_parameters={"sliding": near, "full": FAR})
    assert config.rope_of("sliding") == {"rope_type": "default", "rope_theta": 10.0} and config.rope_of("full") == FAR
    assert near == {"rope_theta": 10.0}  # what was given stays as it was
    one = QkvDecoderConfig(**fields, rope_theta=7.0)
    assert one.rope_of("sliding") == one.rope_of("full") == {"rope_type": "default", "rope_theta": 7.0}


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "linear", "factor": 2},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 32, "mscale": 0.7},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "attention_factor": None},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
    ],
    ids=lambda parameters: parameters["rope_type"],
)
def test_rope_parameters_are_kept(parameters: dict[str, Any]) -> None:
    before = dict(parameters)
    config = QkvDecoderConfig(position="rope", rope_parameters=parameters)
    assert parameters == before and parameters.items() <= config.rope_parameters.items()


def test_parts_of_pairs_have_the_sizes_of_residues_and_pairs() -> None:
    config = QkvPairConfig(**PAIR, residual_dropout=0.1, pair_dropout=0.2, attention_gate=False)
    for stack, names, dropout in (
        (config.residue_stack(), ("hidden_size", "num_attention_heads", "intermediate_size"), 0.1),
        (config.pair_stack(), ("pair_hidden_size", "num_pair_attention_heads", "pair_intermediate_size"), 0.0),
    ):
        assert [stack.hidden_size, stack.num_attention_heads, stack.intermediate_size] == [PAIR[name] for name in names]
        assert stack.biased_projections == ("o_proj",) and not stack.causal and not stack.attention_gate
        assert stack.residual_dropout == dropout


@pytest.mark.parametrize("name", ["Decoder", "EncoderDecoder"])
def test_plan_over_devices_splits_every_matrix_and_keeps_the_norms_of_heads_whole(name: str) -> None:
    fields = {**SMALL, "feed_forward": "glu", "query_key_norm": True}
    config = getattr(qkv, f"Qkv{name}Config")(**fields)
    with torch.device("meta"):
        model = getattr(qkv, f"Qkv{name}Model")(config)
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
    biased = qkv.QkvEncoderDecoderConfig(**SMALL, position="t5").base_model_tp_plan
    assert {key.split(".")[3] for key in biased} == {"cross_attn", "mlp"}
    assert {name.partition(".")[0] for name in tiny.dual_encoder().base_model_tp_plan} == {"text_model", "vision_model"}
    recurrent = QkvDecoderConfig(kernel=STATE_KERNELS[-1]).base_model_tp_plan
    assert not [name for name in recurrent if "self_attn" in name]
