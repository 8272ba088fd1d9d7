"""Similarity of positions: of the papers' sinusoids and rotations, of a model of ours and of transformers'."""

import math
from typing import Any

import pytest
import torch

import qkv
import reference
import tiny
from families.attentions import SIZES, WORDS, stock
from qkv.scripts.probes.positions import (
    by_distance,
    cosine_similarity,
    position_bias,
    position_vectors,
    rotary_similarity,
    stock_rotary_similarity,
    table_vectors,
)

TOKENS = 9
TABLES = {"sinusoidal": reference.sinusoidal_table, "sinusoidal_t2t": reference.sinusoidal_t2t_table}


def decoder(**fields: Any) -> Any:
    torch.manual_seed(0)
    return qkv.QkvDecoderModel(tiny.decoder(**fields)).eval()


@pytest.mark.parametrize("position", TABLES)
def test_sinusoids(position: str) -> None:
    vectors = position_vectors(decoder(position=position), TOKENS, None)
    assert vectors is not None
    table = TABLES[position](TOKENS, 32)
    similarity = cosine_similarity(vectors)
    for one in range(TOKENS):
        for other in range(TOKENS):
            cosine = table[one] @ table[other] / table[one].norm() / table[other].norm()
            assert similarity[one, other].item() == pytest.approx(cosine.item(), abs=1e-5)


def test_tables_without_what_stands_before_the_first_position() -> None:
    model = decoder(position_offset=2)
    assert torch.equal(position_vectors(model, TOKENS, None), model.position.table.weight[2 : 2 + TOKENS])
    roberta = stock("RobertaModel", "RobertaConfig", **SIZES, **WORDS, pad_token_id=1)
    ((path, rows),) = table_vectors(roberta, TOKENS)
    assert path == "embeddings.position_embeddings.weight"
    assert torch.equal(rows, roberta.embeddings.position_embeddings.weight[2 : 2 + TOKENS])
    widths = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    bart = stock("BartModel", "BartConfig", **WORDS, **widths, encoder_attention_heads=4, decoder_attention_heads=4)
    for (_, rows), side in zip(table_vectors(bart, TOKENS), (bart.encoder, bart.decoder), strict=True):
        assert torch.equal(rows, side.embed_positions.weight[2 : 2 + TOKENS])


def test_no_vectors_where_nothing_is_added() -> None:
    assert position_vectors(decoder(position="rope"), TOKENS, None) is None
    assert list(rotary_similarity(decoder(), TOKENS)) == [] == position_bias(decoder(), TOKENS)


def test_similarity_by_distance() -> None:
    similarity = torch.arange(9.0).view(3, 3)
    text = by_distance(similarity, torch.arange(3)[:, None])
    assert text == [(0, 4.0), (1, 4.0), (2, 4.0)]
    image = by_distance(torch.eye(4), torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))
    assert image == [(0, 1.0), (1, 0.0)]  # the diagonal, 1.41, is nearest to 1


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotations(share: float) -> None:
    parameters = {"rope_type": "default", "rope_theta": 10.0, "partial_rotary_factor": share}
    ((pattern, scores),) = rotary_similarity(decoder(position="rope", rope_parameters=parameters), TOKENS)
    assert pattern is None
    rotated = int(8 * share)
    for distance in range(TOKENS):
        turns = [math.cos(distance * 10.0 ** (-2 * pair / rotated)) for pair in range(rotated // 2)]
        expected = (2 * sum(turns) + 8 - rotated) / 8
        assert scores[distance].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", [("LlamaModel", "LlamaConfig"), ("GPTNeoXModel", "GPTNeoXConfig")])
def test_rotations_of_transformers_are_ours(kind: tuple[str, str]) -> None:
    model = stock(*kind, **SIZES, **WORDS)
    ((_, layer_type, scores),) = stock_rotary_similarity(model, TOKENS)
    assert layer_type is None
    ((_, own),) = rotary_similarity(qkv.from_transformers(model), TOKENS)
    torch.testing.assert_close(scores, own, rtol=1e-5, atol=1e-5)
    assert scores[0] == 1 and scores[1:].max() < 1


def test_scores_decay_with_xpos() -> None:
    fields = {"position": "xpos", "rope_parameters": {"rope_type": "default", "rope_theta": 1e9}}
    ((_, scores),) = rotary_similarity(decoder(**fields), 40)
    rope = next(iter(rotary_similarity(decoder(**{**fields, "position": "rope"}), 40)))[1]
    assert (scores[1:] < rope[1:]).all()


def test_layers_with_rotations_of_their_own() -> None:
    model = qkv.QkvEncoderModel(tiny.encoder("modernbert"))
    both = dict(rotary_similarity(model, TOKENS))
    assert both.keys() == {"full", "sliding"} and not torch.allclose(both["full"], both["sliding"], atol=0.01)


@pytest.mark.parametrize("causal", [True, False])
def test_alibi_falls_by_the_slope_of_each_head(causal: bool) -> None:
    torch.manual_seed(0)
    model: Any = decoder(position="alibi") if causal else qkv.QkvEncoderModel(tiny.encoder(position="alibi"))
    rows = dict(position_bias(model, TOKENS))
    assert list(rows) == list(range(0 if causal else 1 - TOKENS, TOKENS))
    for distance, values in rows.items():
        slopes = torch.tensor([2.0 ** (-2 * (head + 1)) for head in range(4)])
        torch.testing.assert_close(values, -slopes * abs(distance))


def test_t5_of_ours_and_of_transformers() -> None:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 61}
    model = stock("T5Model", "T5Config", **sizes)
    ours = qkv.from_transformers(model)
    for side in ("encoder", "decoder"):
        attention = getattr(model, side).block[0].layer[0].SelfAttention
        rows, own = dict(position_bias(attention, TOKENS)), dict(position_bias(getattr(ours, side), TOKENS))
        assert rows.keys() == own.keys() == set(range(1 - TOKENS if side == "encoder" else 0, TOKENS))
        assert all(torch.equal(rows[distance], own[distance]) for distance in rows)
    # Query minus key: what came before has its own buckets.
    encoder = dict(position_bias(ours.encoder, TOKENS))
    assert not torch.equal(encoder[1], encoder[-1])


def test_detectors_tell_rows_and_columns_apart() -> None:
    model = qkv.QkvDetectionModel(tiny.detector())
    vectors = position_vectors(model.encoder, 6, (2, 3))
    assert vectors is not None and vectors.shape == (6, 32)
    assert torch.equal(vectors[0, :16], vectors[1, :16]) and torch.equal(vectors[0, 16:], vectors[3, 16:])
    assert position_vectors(model.decoder, tiny.QUERIES, None) is None
