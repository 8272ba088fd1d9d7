"""The induction score of every head is that of the paper's loops, over random tokens that are repeated."""

import pytest
import torch

import qkv
import reference
import tiny
from errors import raises_sentence
from families.attentions import built, eager
from qkv.scripts.probes.induction import LENGTH, repeated_tokens

CAUSAL = ["qkv gpt2", "qkv mistral", "qkv bloom", "qkv linear", "stock llama", "stock gpt-oss"]


@pytest.mark.parametrize("name", CAUSAL)
def test_every_head_of_every_family(name: str) -> None:
    model, _, names = built(name)
    tokens = repeated_tokens(model, 5, 2, seed=3)
    assert all(len(set(row.tolist())) == 5 for row in tokens)
    score = qkv.induction_score(model, length=5, sequences=2, seed=3)
    layers = eager(model, {"input_ids": tokens, "use_cache": False}, names)["decoder"]
    assert score.shape == (len(layers), layers[0].shape[1])
    for own, weights in zip(score, layers, strict=True):
        for head, value in enumerate(own):
            rows = zip(weights.double(), tokens.tolist(), strict=True)
            expected = sum(reference.prefix_matching(heads[head], row) for heads, row in rows) / 2
            assert value.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    # Nor is it that of other heads or layers.
    shuffled = [score.roll(1, 1)] if "linear" not in name else []
    assert all((score - other).abs().max() > 1e-4 for other in [*shuffled, score.roll(1, 0)])


def test_random_tokens_are_repeated_and_not_special() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder())
    tokens = repeated_tokens(model, 24, 50, seed=1)
    assert torch.equal(tokens[:, :24], tokens[:, 24:])
    assert not torch.isin(tokens, torch.tensor([tiny.PAD, tiny.START, tiny.END])).any() and 0 in tokens
    assert not torch.equal(tokens, repeated_tokens(model, 24, 50, seed=2))
    assert repeated_tokens(model).shape[1] == 48
    unlimited = qkv.QkvDecoderForCausalLM(tiny.decoder("llama", max_position_embeddings=400))
    assert repeated_tokens(unlimited).shape[1] == 2 * LENGTH


@pytest.mark.parametrize("length", [1, 25])
def test_a_length_that_does_not_fit_is_refused(length: int) -> None:
    with raises_sentence(f"length={length}", "48", "24"):
        qkv.induction_score(qkv.QkvDecoderForCausalLM(tiny.decoder()), length=length)


@pytest.mark.parametrize("name", ["qkv bert", "qkv t5", "stock clip"])
def test_models_without_induction_are_refused(name: str) -> None:
    model = built(name)[0]
    with raises_sentence(type(model).__name__, "QkvDecoderForCausalLM"):
        qkv.induction_score(model)
    with raises_sentence("QkvDecoderForCausalLM"):
        qkv.induction_score(qkv.QkvDecoderForCausalLM(tiny.decoder("deltanet")))
