"""Perplexity by length: the mean of what each row says of its tokens."""

import math

import pytest
import torch

import qkv
import tiny
from qkv.scripts.context.perplexity import perplexity_by_length

TOKENS = torch.randint(4, tiny.VOCABULARY, (50,), generator=torch.Generator().manual_seed(0))


def test_a_decoder_predicts_all_but_the_first_token_of_a_row() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder()).eval()
    found = perplexity_by_length(model, TOKENS, [8, 16, 49])
    assert [*found] == [8, 16]  # the table has 48 rows
    for length, perplexity in found.items():
        losses = []
        for start in range(0, 48, length):
            row = TOKENS[start : start + length]
            scores = model(row[None]).logits[0].log_softmax(-1)
            losses += [-scores[at, row[at + 1]].item() for at in range(length - 1)]
        assert perplexity == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)


def test_masked_tokens_are_the_same_at_every_length() -> None:
    model = qkv.QkvEncoderForMaskedLM(tiny.encoder()).train()
    mask = tiny.VOCABULARY - 1
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    found = perplexity_by_length(model, TOKENS, [8, 16], mask)
    assert [*found] == [8, 16] and all(value > 1 for value in found.values())
    assert torch.equal(torch.cat(seen[:6], 1), torch.cat(seen[6:], 1)) and mask in torch.cat(seen[:6], 1)
    assert model.training


def test_a_long_text_is_read_where_positions_have_no_end() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder("llama"))
    assert [*perplexity_by_length(model, TOKENS, [50, 51])] == [50]
    assert perplexity_by_length(model, TOKENS, [60]) == {}


def test_models_without_a_perplexity_say_so() -> None:
    with pytest.raises(ValueError, match="mask_token_id"):
        perplexity_by_length(qkv.QkvEncoderForMaskedLM(tiny.encoder()), TOKENS, [8])
    with pytest.raises(ValueError, match="QkvEncoderModel"):
        perplexity_by_length(qkv.QkvEncoderModel(tiny.encoder()), TOKENS, [8])
