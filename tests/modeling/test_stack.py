"""A whole stack, for every word of every axis, is the composition of its slow loops."""

import dataclasses
import inspect
import itertools
from pathlib import Path
from typing import get_args

import pytest
import torch
from slow_stack import run_slowly
from torch import nn

from comparison import assert_same, decoder, encoder, exact, jittered
from qkv.configuration.axes import NormPositionName, PatternName, PositionName
from qkv.modeling import attention
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from sampling import sampled

LENGTH = 5
IDS = torch.tensor([[0, 3, 10, 10, 7], [5, 1, 2, 9, 0]])
SIZES = {
    **{"num_hidden_layers": 2, "sliding_window": 2, "block_size": 2, "fixed_columns": 1, "num_random_blocks": 1},
    **{"text_length": 1, "grid_columns": 2, "grid_kernel": 1, "hidden_act": "relu"},
    **{"relative_attention_num_buckets": 4, "relative_attention_max_distance": 6},
}
MODELS = {encoder: QkvEncoderModel, decoder: QkvDecoderModel}
STACKS = pytest.mark.parametrize("stack", MODELS, ids=["encoder", "decoder"])
ORDERS = pytest.mark.parametrize("norm_position", get_args(NormPositionName))


def parameters(model):
    """Those that act; a pooler reads what the loop ends with."""
    return [parameter for name, parameter in model.named_parameters() if not name.startswith("pooler")]


def check(stack, **fields):
    model = jittered(MODELS[stack](stack(**{**SIZES, **fields}))).eval()
    with exact():
        actual = model(IDS[:1]).last_hidden_state
    assert_same(actual, run_slowly(model, IDS[:1]), *parameters(model))


PAIRS = sampled(itertools.product(get_args(PositionName), get_args(PatternName)), 13)


@pytest.mark.parametrize(("position", "pattern"), PAIRS)
@ORDERS
@STACKS
def test_stack_is_the_composition_of_its_loops(stack, position, pattern, norm_position):
    check(stack, position=position, pattern=pattern, norm_position=norm_position)


OTHERS = {
    "parallel": {"parallel_residual": True},
    "parallel, one norm": {"parallel_residual": "shared_norm", "query_key_norm": "width"},
    "multipliers": {"embedding_multiplier": 3.0, "residual_multiplier": 0.3, "query_key_norm": "each_head"},
    "zero-centred gains": {"norm_gain": "zero_centered", "norm_position": "sandwich", "norm": "rms"},
    "no gains": {"norm_gain": "none", "norm_position": "inside", "embedding_norm": True},
    "normed rotated heads": {"query_key_norm": "head_after_rotation", "position": "rope"},
    "bounded scores": {"attn_logit_softcapping": 0.3, "position": "alibi"},
    "rotated layers": {"position": ["rope", "none"], "pattern": ["sliding", "full"]},
    "biased layers": {"position": ["none", "alibi"]},
    "layer scale": {"layer_scale": 0.1},
    "normed queries and keys": {"query_key_norm": True, "position": "rope"},
    "normed queries and keys, rms": {"query_key_norm": True, "norm": "rms", "position": "t5"},
    "gated": {"attention_gate": True, "position": "alibi"},
    "no bias in norms": {"norm_bias": False, "embedding_norm": True, "query_key_norm": True},
    "no first norm": {"embedding_norm": "instead"},
    "no last norm": {"final_norm": False},
    "half a rotation": {"position": "rope", "rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 0.5}},
    "rope by pattern": {
        "position": "rope",
        "pattern": ["sliding", "full"],
        "rope_parameters": {"full": {"rope_theta": 50.0}, "sliding": {"rope_theta": 3.0}},
    },
    "all at once": {
        **{"parallel_residual": True, "layer_scale": 0.1, "query_key_norm": True, "norm_bias": False},
        **{"attention_gate": True, "embedding_norm": "instead", "position": "alibi", "feed_forward": "glu"},
    },
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
@STACKS
def test_stack_of_other_axes(stack, fields):
    declared = {field.name for field in dataclasses.fields(stack())}
    check(stack, **{name: value for name, value in fields.items() if name in declared})


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope"])
@pytest.mark.parametrize("width", [4, 8])
@STACKS
def test_embeddings_may_have_another_width(stack, position, width):
    check(stack, position=position, embedding_size=width, embedding_norm=True)


@STACKS
def test_each_layer_may_have_its_pattern(stack):
    names = get_args(PatternName)
    check(stack, pattern=[*names, names[0]], num_hidden_layers=len(names) + 1, position="rope")


def test_dropout_acts_on_the_embeddings():
    fields = {"embedding_dropout": 0.5, "position": "none", "final_norm": False, "num_hidden_layers": 1}
    model = jittered(QkvDecoderModel(decoder(**fields))).train()
    for last in (model.layers[0].self_attn.o_proj, model.layers[0].mlp.down_proj):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    given = torch.ones(4, 13, 6, dtype=torch.float64)
    assert set(model(inputs_embeds=given).last_hidden_state.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(model.eval()(inputs_embeds=given).last_hidden_state, given)


def test_four_frames_lead_from_ids_to_the_backend(monkeypatch):
    """What a reader of a traceback has to follow: the model, its stack, a layer, its attention."""
    frames = []

    def recorded(*args, **kwargs):
        ours = [
            frame.function
            for frame in inspect.stack()
            if Path(frame.filename).parent == Path(attention.__file__).parent
        ]
        frames.append(list(reversed(ours)))
        return eager_attention(*args, **kwargs)

    eager_attention = attention.eager_attention
    monkeypatch.setattr(attention, "eager_attention", recorded)
    QkvDecoderModel(decoder(num_hidden_layers=1, attn_implementation="eager"))(IDS)
    assert frames == [["forward", "run", "forward", "forward"]]
