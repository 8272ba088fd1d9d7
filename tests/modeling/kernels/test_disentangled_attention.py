"""Disentangled attention is the paper's, from distances to vectors to scores; other families refuse its words."""

import itertools

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

import qkv
import reference
from comparison import PLACES, assert_same, draw, encoder, encoding, exact, jittered
from errors import raises_sentence
from qkv.configuration.axes import DISENTANGLED_POSITIONS
from qkv.modeling.context import LayerContext
from qkv.modeling.fast_paths.unpadding import DocumentPlan
from qkv.modeling.fast_paths.windows import WindowPlan
from qkv.modeling.kernels.disentangled_attention import DisentangledAttention
from qkv.modeling.position.hooks import Embedded, PositionState

SIZES = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11}


def distances(**fields):
    return encoder(position="disentangled", num_attention_heads=4, attn_implementation="eager", **{**SIZES, **fields})


@pytest.mark.parametrize(("buckets", "furthest"), [(8, 20), (64, 128), (512, 512), (4, 3), (14, 33), (26, 14)])
def test_buckets(buckets, furthest):
    config = distances(relative_attention_num_buckets=buckets, relative_attention_max_distance=furthest)
    places = torch.arange(-600, 601)
    numbers = encoding(config).bias(places[None], torch.zeros(1, 1, dtype=torch.long)).flatten()
    theirs = make_log_bucket_position(places, buckets // 2, furthest).long() + buckets // 2
    assert torch.equal(numbers, theirs.clamp(0, buckets - 1))
    assert numbers.tolist() == [reference.disentangled_bucket(place, buckets, furthest) for place in places.tolist()]


@pytest.mark.parametrize("norm", ["layer_norm", "none"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own maps"])
@pytest.mark.parametrize(("terms", "groups"), [("c2p|p2c", 4), ("p2c|c2p", 2), ("c2p", 1), ("p2c", 2)])
def test_attention(terms, groups, shared, norm):
    config = distances(num_key_value_heads=groups, pos_att_type=terms, share_att_key=shared, norm_rel_ebd=norm)
    position, module, hidden = encoding(config), jittered(DisentangledAttention(config, 0)).eval(), draw(2, 7, 6)
    with exact():
        state = PositionState(bias=position.bias(PLACES, PLACES), vectors=position.vectors(hidden.device))
        mixed, weights = module(hidden, LayerContext(position=state))
    table = position.distances.weight
    gain = (position.norm.weight, position.norm.bias) if norm == "layer_norm" else None
    vectors = reference.layer_norm(table, *gain, config.norm_eps)[None] if gain else table[None]

    def heads(name, given, count):
        linear = getattr(module, name)
        return reference.split_heads(reference.linear(given, linear.weight, linear.bias), count)

    own = "" if shared else "pos_"
    scale = (config.head_dim * (1 + len(terms.split("|")))) ** -0.5
    query, key = heads("q_proj", hidden, 4), heads("k_proj", hidden, groups)
    added = reference.disentangled_bias(
        query,
        key,
        heads(f"{own}q_proj", vectors, 4) if "p2c" in terms else None,
        heads(f"{own}k_proj", vectors, groups) if "c2p" in terms else None,
        PLACES,
        PLACES,
        11,
    )
    expected, expected_weights = reference.attention(
        query, key, heads("v_proj", hidden, groups), scale, bias=added * scale
    )
    expected = reference.linear(reference.merge_heads(expected), module.o_proj.weight, module.o_proj.bias)
    assert_same(mixed, expected, hidden, *module.parameters(), *position.parameters())
    assert_same(weights, expected_weights, hidden)
    assert {name for name, _ in module.named_parameters() if name.startswith("pos_")} == {
        f"pos_{letter}_proj.{part}"
        for letter, term in (("k", "c2p"), ("q", "p2c"))
        for part in ("weight", "bias")
        if term in terms and not shared
    }


def test_a_table_is_added_as_well():
    module, hidden = encoding(encoder(position="learned_and_disentangled", **SIZES)), draw(2, 7, 6)
    with exact():
        embedded = module.embed(Embedded(hidden), PLACES)
    assert_same(embedded, hidden + reference.learned_positions(PLACES, module.table.weight), hidden)
    assert torch.equal(module.bias(PLACES, PLACES), encoding(distances()).bias(PLACES, PLACES))


def test_vectors_are_dropped_out_in_training():
    config = distances(embedding_dropout=0.5)
    position, module, hidden = encoding(config), jittered(DisentangledAttention(config, 0)), draw(2, 7, 6)
    with exact():
        context = LayerContext(
            position=PositionState(bias=position.bias(PLACES, PLACES), vectors=position.vectors("cpu"))
        )
        drawn = [module(hidden, context)[0] for _ in range(2)]
        kept = [module.eval()(hidden, context)[0] for _ in range(2)]
    assert not torch.equal(*drawn) and torch.equal(*kept)


@pytest.mark.parametrize("pattern", ["full", "sliding"])
@pytest.mark.parametrize("position", DISENTANGLED_POSITIONS)
def test_paths_that_know_no_vectors_are_closed(position, pattern, monkeypatch):
    """A long padded text, whose documents and windows would be computed apart with another word."""
    config = encoder(position=position, pattern=pattern, sliding_window=3, max_position_embeddings=256)
    model, mask = jittered(qkv.QkvEncoderModel(config)).eval(), torch.ones(2, 256, dtype=torch.long)
    mask[1, 150:] = 0
    model.remove_padding, taken = True, []
    for plan in (DocumentPlan, WindowPlan):
        monkeypatch.setattr(plan, "__init__", lambda *given, plan=plan: taken.append(plan))
    with exact(), torch.no_grad():
        whole = model(torch.ones_like(mask), attention_mask=mask).last_hidden_state
        alone = model(torch.ones_like(mask)[1:, :150]).last_hidden_state
    assert not taken and (whole[1:, :150] - alone).abs().max() <= 1e-12


REFUSED = [
    (qkv.QkvEncoderConfig, {"kernel": "linear"}),
    (qkv.QkvEncoderConfig, {"global_projections": True, "pattern": "sliding", "sliding_window": 3}),
    (qkv.QkvDecoderConfig, {}),
    (qkv.QkvImageEncoderConfig, {}),
]


@pytest.mark.parametrize(("word", "row"), itertools.product(DISENTANGLED_POSITIONS, REFUSED))
def test_refused(word, row):
    config_class, fields = row
    with raises_sentence(f"position={word!r}"):
        config_class(position=word, **fields)


@pytest.mark.parametrize(
    "fields",
    [{"relative_attention_max_distance": 3}, {"relative_attention_num_buckets": 24}, {"pos_att_type": "p2p"}],
    ids=str,
)
def test_sizes_and_terms_are_checked(fields):
    with raises_sentence(*fields):
        distances(**fields)
