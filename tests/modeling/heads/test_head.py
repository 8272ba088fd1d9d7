"""Heads read the right states, and score them as the papers say."""

from typing import get_args

import pytest
import torch

import reference
from comparison import assert_same, decoder, draw, encoder, jittered, vision
from qkv.configuration.axes import NormName
from qkv.modeling.heads.head import POOLINGS, PixelHead, last_token, scale_for_head
from qkv.modeling.heads.transform import MaskedLMHead, transform

KEEP = {
    "right": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]),
    "left": torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]]),
    "both": torch.tensor([[0, 1, 1, 1, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0]]),
}
SIDES = pytest.mark.parametrize("side", KEEP)
IMAGE = {"class_token": True, "distillation_token": True}


def firsts(hidden, keep):
    return torch.stack([row[kept.tolist().index(1)] for row, kept in zip(hidden, keep, strict=True)])


def scores(linear, x):
    return reference.linear(x, linear.weight, linear.bias)


def normed(norm, x):
    bias = getattr(norm, "bias", None)
    if bias is None:
        return reference.rms_norm(x, norm.weight, norm.eps)
    return reference.layer_norm(x, norm.weight, bias, norm.eps)


@pytest.mark.parametrize("act", reference.ACTIVATIONS)
@pytest.mark.parametrize("kind", get_args(NormName))
def test_masked_language_head(kind, act):
    head, hidden = jittered(MaskedLMHead(encoder(norm=kind, hidden_act=act))), draw(2, 5, 6)
    inner = normed(head.norm, reference.ACTIVATIONS[act](scores(head.dense, hidden)))
    assert_same(head(hidden), scores(head.decoder, inner), hidden, *head.parameters())


@SIDES
def test_first(side):
    pooler, hidden = POOLINGS["first"](encoder()), draw(3, 5, 6)
    assert_same(pooler(hidden, KEEP[side]), firsts(hidden, KEEP[side]), hidden)
    assert_same(pooler(hidden), hidden[:, 0], hidden)


@SIDES
def test_dense(side):
    pooler, hidden = jittered(POOLINGS["dense"](encoder(pooling="dense"))), draw(3, 5, 6)
    expected = reference.tanh(scores(pooler.dense, firsts(hidden, KEEP[side])))
    assert_same(pooler(hidden, KEEP[side]), expected, hidden, *pooler.parameters())


@SIDES
def test_mean(side):
    pooler, hidden = POOLINGS["mean"](encoder(pooling="mean")), draw(3, 5, 6)
    for keep in (KEEP[side], torch.zeros(3, 5)):  # the mean of nothing is zero
        assert_same(pooler(hidden, keep), reference.mean_pool(hidden, keep), hidden)
    assert_same(pooler(hidden), reference.mean_pool(hidden, torch.ones(3, 5)), hidden)


@pytest.mark.parametrize("tokens", [(True, True), (True, False), (False, True), (False, False)])
def test_mean_of_an_image_is_over_its_patches(tokens):
    config = vision(pooling="mean", class_token=tokens[0], distillation_token=tokens[1])
    hidden = draw(3, 7, 6)
    expected = reference.mean_pool(hidden[:, sum(tokens) :], torch.ones(3, 7 - sum(tokens)))
    assert_same(POOLINGS["mean"](config)(hidden), expected, hidden)


@pytest.mark.parametrize(("kind", "places"), [("end", [1, 4, 0]), ("highest", [2, 0, 1])])
def test_end_of_a_text(kind, places):
    ids = torch.tensor([[4, 3, 10, 3, 3], [10, 5, 5, 5, 3], [3, 9, 9, 3, 1]])
    pooler, hidden = POOLINGS[kind](encoder(pooling=kind, eos_token_id=3)), draw(3, 5, 6)
    expected = torch.stack([row[place] for row, place in zip(hidden, places, strict=True)])
    assert_same(pooler(hidden, KEEP["right"], ids), expected, hidden)
    assert_same(pooler(hidden, KEEP["left"]), last_token(hidden, KEEP["left"]), hidden)  # embeddings given for ids


@SIDES
def test_last_token_is_read_whether_it_is_padding_or_not(side):
    pooler, hidden = jittered(POOLINGS["last"](encoder())), draw(3, 5, 6)
    assert_same(pooler(hidden, KEEP[side]), scores(pooler.dense, hidden[:, -1]), hidden, *pooler.parameters())


@pytest.mark.parametrize("heads", [{"num_attention_heads": 3}, {"num_attention_heads": 2, "num_key_value_heads": 1}])
def test_learned_query_reads_all_tokens(heads):
    pooler, hidden = jittered(POOLINGS["attention"](vision(pooling="attention", **heads))), draw(3, 5, 6)
    read = pooler.attention
    q = scores(read.q_proj, pooler.probe.expand(3, -1, -1)).unflatten(-1, (-1, read.head_dim)).transpose(1, 2)
    k, v = (
        scores(one, hidden).unflatten(-1, (-1, read.head_dim)).transpose(1, 2) for one in (read.k_proj, read.v_proj)
    )
    mixed = scores(read.o_proj, reference.attention(q, k, v)[0].transpose(1, 2).flatten(2))[:, 0]
    inner = reference.gelu(scores(pooler.mlp.up_proj, normed(pooler.norm, mixed)))
    expected = mixed + scores(pooler.mlp.down_proj, inner)
    assert_same(pooler(hidden), expected, hidden, *pooler.parameters())


@pytest.mark.parametrize("act", [None, "relu"])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_transform_before_a_classifier(act, kind):
    config, hidden = encoder(head_transform=True, head_act=act, norm=kind, hidden_act="silu"), draw(2, 5, 6)
    head = jittered(transform(config))
    inner = getattr(reference, act or "silu")(scores(head.dense, hidden))
    assert_same(head(hidden), normed(head.norm, inner), hidden, *head.parameters())
    assert isinstance(transform(encoder()), torch.nn.Identity)


def test_pixels_are_laid_out_as_they_were_cut():
    """Each patch's row of scores is its pixels, channel by channel: cutting the picture again gives them back."""
    config, hidden = vision(patch_size=2), draw(3, 15, 6)
    head = jittered(PixelHead(config))
    picture = head(hidden, (3, 5))
    assert picture.shape == (3, 3, 6, 10)
    cut = torch.stack([reference.patches(image, 2) for image in picture])
    assert_same(cut, reference.linear(hidden, head.projection.weight[..., 0, 0], head.projection.bias), hidden)


@SIDES
def test_last_token(side):
    hidden, keep = draw(3, 5, 6), KEEP[side]
    expected = torch.stack([row[kept.nonzero()[-1, 0]] for row, kept in zip(hidden, keep, strict=True)])
    assert_same(last_token(hidden, keep), expected, hidden)
    assert_same(last_token(hidden, None), hidden[:, -1], hidden)


def test_scale_for_head():
    hidden = torch.randn(2, 3, 6, dtype=torch.float64)
    assert scale_for_head(hidden, decoder()) is hidden
    torch.testing.assert_close(scale_for_head(hidden, decoder(scale_logits=True)), hidden / 6**0.5, atol=0, rtol=1e-15)
