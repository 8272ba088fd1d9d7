"""A whole stack, for every word of every axis, is the composition of its slow loops."""

import dataclasses
import inspect
import itertools
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import torch
from slow_stack import BIASES, INPUTS, PATTERNS, Row
from torch import nn

import reference
from comparison import assert_same, decoder, encoder, exact, gate_of, jittered
from qkv.configuration.axes import ROTARY_POSITIONS, FeedForwardName, NormName, PatternName, PositionName
from qkv.modeling import attention
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from sampling import sampled

LENGTH = 5
IDS = torch.tensor([[0, 3, 10, 10, 7], [5, 1, 2, 9, 0]])
PLACES = torch.arange(LENGTH)[None]
SIZES = {
    **{"num_hidden_layers": 2, "sliding_window": 2, "block_size": 2, "fixed_columns": 1, "num_random_blocks": 1},
    **{"text_length": 1, "grid_columns": 2, "grid_kernel": 1, "hidden_act": "relu"},
    **{"relative_attention_num_buckets": 4, "relative_attention_max_distance": 6},
}
MODELS = {encoder: QkvEncoderModel, decoder: QkvDecoderModel}
STACKS = pytest.mark.parametrize("stack", MODELS, ids=["encoder", "decoder"])
ORDERS = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])


def norm(module, x):
    if module is None or isinstance(module, nn.Identity):
        return x
    if isinstance(module, nn.LayerNorm):
        return reference.layer_norm(x, module.weight, module.bias, module.eps)
    return reference.rms_norm(x, module.weight, module.eps)


def hooks(model, pattern, attention):
    """What norms and positions do inside attention."""
    config = model.config
    given = {"rotate_query": partial(norm, attention.q_norm), "rotate_key": partial(norm, attention.k_norm)}
    if config.position in ROTARY_POSITIONS:
        rope = config.rope_of(pattern)
        turning = int(config.head_dim * rope.get("partial_rotary_factor", 1))
        frequencies, _ = reference.rope_frequencies(turning, rope["rope_theta"])

        def turn(heads, normed, sign):
            turned = reference.rotate_heads(normed(heads), PLACES, frequencies)
            return reference.xpos_scale(turned, PLACES, turning, sign) if config.position == "xpos" else turned

        signs = {"rotate_query": 1, "rotate_key": -1}
        return {name: partial(turn, normed=normed, sign=signs[name]) for name, normed in given.items()}
    make = BIASES.get(config.position)
    return given if make is None else {**given, "bias": make(model, PLACES)}


def feed_forward(module, x):
    names = ("gate_proj", "up_proj", "down_proj") if hasattr(module, "gate_proj") else ("up_proj", "down_proj")
    weights = [tensor for name in names for tensor in (getattr(module, name).weight, getattr(module, name).bias)]
    return (reference.glu if len(names) == 3 else reference.mlp)(x, *weights, reference.relu)


def scaled(residual, branch):
    return branch if residual.layer_scale is None else reference.layer_scale(branch, residual.layer_scale)


def loop(model, ids):
    config, row = model.config, Row(PLACES, None)
    add = reference.residual_pre_norm if config.norm_first else reference.residual_post_norm
    hidden = reference.token_embeddings(ids, model.embed_tokens.weight)
    if config.position in INPUTS:
        hidden = hidden + INPUTS[config.position](model, row)
    hidden = norm(model.embed_norm, hidden)
    if isinstance(model.embed_projection, nn.Linear):
        hidden = reference.linear(hidden, model.embed_projection.weight, model.embed_projection.bias)
    for layer, pattern in zip(model.layers, config.layer_patterns, strict=True):
        predicates = [PATTERNS[pattern](config), *([reference.causal] if config.causal else [])]
        module = layer.self_attn
        given = {"visible": reference.visibility(*predicates), "gate": gate_of(module)}
        given |= hooks(model, pattern, module)
        projections = (module.q_proj, module.k_proj, module.v_proj, module.o_proj)
        weights = [tensor for projection in projections for tensor in (projection.weight, projection.bias)]

        def attend(x, weights=weights, given=given, residual=layer.self_attn_residual):
            heads = (config.num_attention_heads, config.num_key_value_heads)
            return scaled(residual, reference.multi_head_attention(x, x, *weights, *heads, **given)[0])

        def widen(x, residual=layer.mlp_residual, mlp=layer.mlp):
            return scaled(residual, feed_forward(mlp, x))

        norms = [partial(norm, residual.norm) for residual in (layer.self_attn_residual, layer.mlp_residual)]
        if config.parallel_residual:
            hidden = reference.residual_parallel(hidden, attend, widen, *norms)
        else:
            hidden = add(add(hidden, attend, norms[0]), widen, norms[1])
    return norm(model.norm, hidden)


def parameters(model):
    """Those that act; a pooler reads what the loop ends with."""
    return [parameter for name, parameter in model.named_parameters() if not name.startswith("pooler")]


def check(stack, **fields):
    model = jittered(MODELS[stack](stack(**{**SIZES, **fields}))).eval()
    with exact():
        actual = model(IDS[:1]).last_hidden_state
    assert_same(actual, loop(model, IDS[:1]), *parameters(model))


PAIRS = sampled(itertools.product(get_args(PositionName), get_args(PatternName)), 7)


@pytest.mark.parametrize(("position", "pattern"), PAIRS)
@ORDERS
@STACKS
def test_stack_is_the_composition_of_its_loops(stack, position, pattern, norm_first):
    check(stack, position=position, pattern=pattern, norm_first=norm_first)


@pytest.mark.parametrize(("kind", "inner"), [*itertools.product(get_args(NormName), get_args(FeedForwardName))])
@ORDERS
@STACKS
def test_stack_of_other_parts(stack, norm_first, kind, inner):
    check(stack, norm=kind, feed_forward=inner, norm_first=norm_first, embedding_norm=True)


OTHERS = {
    "parallel": {"parallel_residual": True},
    "layer scale": {"layer_scale": 0.1},
    "normed queries and keys": {"query_key_norm": True, "position": "rope"},
    "normed queries and keys, rms": {"query_key_norm": True, "norm": "rms", "position": "t5"},
    "gated": {"attention_gate": True, "position": "alibi"},
    "no bias in norms": {"norm_bias": False, "embedding_norm": True, "query_key_norm": True},
    "no first norm": {"embedding_norm": "instead"},
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
def test_embeddings_may_have_another_width(position, width):
    check(encoder, position=position, embedding_size=width, embedding_norm=True)


@pytest.mark.parametrize("final", [True, False], ids=["last norm", "no last norm"])
@ORDERS
def test_last_norm_may_be_chosen(norm_first, final):
    check(decoder, norm_first=norm_first, final_norm=final)


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
    dropped = model(inputs_embeds=given).last_hidden_state
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(model.eval()(inputs_embeds=given).last_hidden_state, given)


@pytest.mark.parametrize("position", ["learned", "rope"])
def test_a_narrow_decoder_is_a_wide_one_between_two_maps(position):
    """The map in turns a narrow table into a wide one before positions; the map out reads what the wide one ends with."""
    narrow = jittered(QkvDecoderModel(decoder(embedding_size=5, position=position, embedding_norm=True))).eval()
    wide = jittered(QkvDecoderModel(decoder(position=position, embedding_norm=True))).eval()
    weights = narrow.state_dict()
    into, out = weights.pop("project_in.weight"), weights.pop("project_out.weight")
    wide.load_state_dict({**weights, "embed_tokens.weight": weights["embed_tokens.weight"] @ into.T})
    with exact():
        expected = wide(IDS).last_hidden_state @ out.T
        assert_same(narrow(IDS).last_hidden_state, expected)
        given = narrow(inputs_embeds=narrow.embed_tokens(IDS)).last_hidden_state
    assert_same(given, expected)
    assert expected.shape == (2, LENGTH, 5)


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
