"""Similarity of positions: of the papers' sinusoids and rotations, of a model of ours and of transformers'."""

import math
from typing import Any

import pytest
import torch

import qkv
import reference
import tiny
from families.attentions import SIZES, WORDS, built, stock
from qkv.scripts.probes.positions import (
    by_distance,
    places_of,
    position_vectors,
    recorded_grids,
    rotary_similarity,
    stock_encodings,
)

TOKENS = 9
TABLES = {"sinusoidal": reference.sinusoidal_table, "sinusoidal_t2t": reference.sinusoidal_t2t_table}


def decoder(**fields: Any) -> Any:
    torch.manual_seed(0)
    return qkv.QkvDecoderModel(tiny.decoder(**fields)).eval()


@pytest.mark.parametrize("position", TABLES)
def test_sinusoids(position: str) -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder(position=position))
    table, similarity = TABLES[position](TOKENS, 32), qkv.inspect(model, tiny.text()).similarity["decoder"]
    for one in range(TOKENS):
        for other in range(TOKENS):
            cosine = table[one] @ table[other] / table[one].norm() / table[other].norm()
            assert similarity[one, other].item() == pytest.approx(cosine.item(), abs=1e-5)


def test_tables_without_what_stands_before_the_first_position() -> None:
    model = decoder(position_offset=2)
    assert torch.equal(position_vectors(model, TOKENS, None), model.position.table.weight[2 : 2 + TOKENS])
    roberta = stock("RobertaModel", "RobertaConfig", **SIZES, **WORDS, pad_token_id=1)
    ((stack, _, rows),) = stock_encodings(roberta, {"encoder": TOKENS})
    assert stack == "encoder"
    assert torch.equal(rows, roberta.embeddings.position_embeddings.weight[2 : 2 + TOKENS])
    widths = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    bart = stock("BartModel", "BartConfig", **WORDS, **widths, encoder_attention_heads=4, decoder_attention_heads=4)
    found = stock_encodings(bart, {"encoder": TOKENS, "decoder": TOKENS})
    for (_, _, rows), side in zip(found, (bart.encoder, bart.decoder), strict=True):
        assert torch.equal(rows, side.embed_positions.weight[2 : 2 + TOKENS])


def test_no_vectors_where_nothing_is_added() -> None:
    assert position_vectors(decoder(position="rope"), TOKENS, None) is None
    assert list(rotary_similarity(decoder(), TOKENS)) == []


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
    ((_, layers, scores),) = stock_encodings(model, {"decoder": TOKENS})
    assert layers is None
    ((_, own),) = rotary_similarity(qkv.from_transformers(model), TOKENS)
    torch.testing.assert_close(scores, own, rtol=1e-5, atol=1e-5)
    assert scores[0] == 1 and scores[1:].max() < 1


def test_layers_with_rotations_of_their_own() -> None:
    model = qkv.QkvEncoderModel(tiny.encoder("modernbert"))
    both = dict(rotary_similarity(model, TOKENS))
    assert both.keys() == {"full", "sliding"} and not torch.allclose(both["full"], both["sliding"], atol=0.01)


def test_detectors_tell_rows_and_columns_apart() -> None:
    model = qkv.QkvDetectionModel(tiny.detector())
    vectors = position_vectors(model.encoder, 6, (2, 3))
    assert vectors is not None and vectors.shape == (6, 32)
    assert torch.equal(vectors[0, :16], vectors[1, :16]) and torch.equal(vectors[0, 16:], vectors[3, 16:])
    assert position_vectors(model.decoder, tiny.QUERIES, None) is None


def places(model: Any, stack: str, tokens: int, batch: dict[str, Any]) -> Any:
    with recorded_grids(model) as grids, torch.no_grad():
        model.eval()(**batch)
    return places_of(model, stack, tokens, batch, grids)


@pytest.mark.parametrize(("kind", "prefix"), [("vit", 1), ("deit", 2), ("mean", 0)])
def test_patches_of_an_image_stand_in_a_grid(kind: str, prefix: int) -> None:
    own = places(qkv.QkvImageEncoderModel(tiny.image_encoder(kind)), "encoder", prefix + 12, tiny.images())
    assert own.prefix == prefix and own.places.tolist() == [[row, column] for row in range(3) for column in range(4)]


def test_places_of_models_of_transformers_and_of_objects() -> None:
    model, batch, _ = built("stock vit")
    own = places(model, "encoder", 17, batch)
    assert own.prefix == 1 and own.places[-1].tolist() == [3, 3] and places(model, "encoder", 40, batch) is None
    clip, batch, _ = built("stock clip")
    assert places(clip, "image", 17, batch).prefix == 1 and places(clip, "text", 9, batch).places.shape == (9, 1)
    model, batch, _ = built("qkv detr")
    assert places(model, "decoder", tiny.QUERIES, batch) is None
    assert places(model, "encoder", tiny.SOURCE, batch).places.shape == (tiny.SOURCE, 2)
    model, batch, _ = built("stock detr")
    assert places(model, "encoder", tiny.SOURCE, batch) is None is places(model, "decoder", tiny.QUERIES, batch)
