"""Tokens become the vectors the papers say, masked ones where they are dropped too."""

import pytest
import torch

import reference
from comparison import assert_same, decoder, draw, encoder, exact, jittered
from qkv.modeling.frontends import FRONTENDS
from qkv.modeling.frontends.tokens import drop_masked_tokens
from qkv.modeling.modeling_encoder import QkvEncoderModel
from qkv.modeling.position.hooks import Embedded

IDS = torch.tensor([[0, 3, 10, 10, 7], [5, 1, 2, 9, 0]])
MASKED = {"scale_embedding": "token_dropout", "mask_token_id": 2, "position": "rope"}
# Rows with two masks, one, and none, the last two padded.
WITH_MASKS = torch.tensor([[2, 3, 10, 2, 7], [5, 1, 2, 9, 0], [4, 8, 6, 0, 0]])
REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])


@pytest.mark.parametrize("stack", [encoder, decoder])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_tokens(stack, scaled):
    frontend = jittered(FRONTENDS["tokens"](stack(scale_embedding=scaled)))
    expected = reference.token_embeddings(IDS, frontend.weight, 6**0.5 if scaled else 1.0)
    assert_same(frontend(IDS), expected, frontend.weight)


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_token_types_are_added_unscaled(scaled):
    fields = {"position": "none", "final_norm": False, "num_hidden_layers": 1}
    model = jittered(QkvEncoderModel(encoder(type_vocab_size=3, scale_embedding=scaled, **fields))).eval()
    for last in (model.layers[0].self_attn.o_proj, model.layers[0].mlp.down_proj):
        # A pre-norm layer whose branches say nothing is transparent.
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
    kinds = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 0, 2]])
    tables = (model.embed_tokens.weight, model.embed_token_types.weight)
    scale = 6**0.5 if scaled else 1.0
    for given, meant in ((kinds, kinds), (None, torch.zeros_like(IDS))):
        actual = model(IDS, token_type_ids=given).last_hidden_state
        assert_same(actual, reference.token_embeddings(IDS, tables[0], scale, meant, tables[1]), *tables)


@pytest.mark.parametrize("side", ["right", "left"])
def test_masked_tokens_are_dropped_and_the_others_scaled(side):
    ids, mask = (WITH_MASKS, REAL) if side == "right" else (WITH_MASKS.flip(-1), REAL.flip(-1))
    config, vectors = encoder(**MASKED), draw(3, 5, 6)
    # A learned prefix is in the mask and not among the tokens.
    prefixed = torch.nn.functional.pad(mask, (2, 0), value=1)
    for given, real in ((mask, mask), (None, torch.ones_like(mask)), (prefixed, mask)):
        with exact():
            dropped = drop_masked_tokens(config, Embedded(vectors, given), ids)
        assert_same(dropped, reference.token_dropout(vectors, ids, 2, real), vectors)


def test_a_text_of_masks_alone_is_zero():
    vectors = draw(1, 2, 6)
    dropped = drop_masked_tokens(encoder(**MASKED), Embedded(vectors), torch.full((1, 2), 2))
    assert torch.equal(dropped, torch.zeros_like(vectors))


@pytest.mark.parametrize("told", ["position_ids", "cu_seq_lens_q"])
def test_masks_are_counted_by_document(told):
    """Packed in a row, each text is embedded as it is alone."""
    model = jittered(QkvEncoderModel(encoder(**MASKED))).eval()
    lengths = REAL.sum(-1).tolist()
    alone = [model(ids[None, :length]).last_hidden_state[0] for ids, length in zip(WITH_MASKS, lengths, strict=True)]
    ends = torch.tensor([0, *lengths]).cumsum(0)
    given = {"position_ids": torch.cat([torch.arange(length) for length in lengths])[None], "cu_seq_lens_q": ends.int()}
    options = {told: given[told], "position_ids": given["position_ids"]}
    packed = model(WITH_MASKS[REAL.bool()][None], **options).last_hidden_state[0]
    assert_same(packed, torch.cat(alone), *model.parameters(), tolerance=1e-11)


def test_embeddings_given_by_hand_are_taken_as_they_are():
    model = jittered(QkvEncoderModel(encoder(**MASKED))).eval()
    plain = jittered(QkvEncoderModel(encoder(**{**MASKED, "scale_embedding": False}))).eval()
    plain.load_state_dict(model.state_dict())
    given = model.embed_tokens(IDS)
    assert torch.equal(model(inputs_embeds=given)[0], plain(IDS)[0]) and not torch.equal(model(IDS)[0], plain(IDS)[0])
