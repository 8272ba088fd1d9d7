"""Tokens and images become the vectors the papers say; impossible ones are refused by name."""

import pytest
import torch

import reference
from comparison import assert_same, decoder, draw, encoder, exact, jittered, vision
from errors import raises_sentence
from qkv.configuration.configuration_detection import QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from qkv.modeling.frontend import DETECTION_FRONTENDS, FRONTENDS, drop_masked_tokens
from qkv.modeling.modeling_encoder import QkvEncoderModel
from qkv.modeling.position.hooks import Embedded

IDS = torch.tensor([[0, 3, 10, 10, 7], [5, 1, 2, 9, 0]])


def patches(**fields):
    frontend = jittered(FRONTENDS["patches"](vision(**fields)))
    frontend.mask_token = torch.nn.Parameter(draw(1, 1, 6).detach())
    return frontend


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


MASKED = {"scale_embedding": "token_dropout", "mask_token_id": 2, "position": "rope"}
# Rows with two masks, one, and none, the last two padded.
WITH_MASKS = torch.tensor([[2, 3, 10, 2, 7], [5, 1, 2, 9, 0], [4, 8, 6, 0, 0]])
REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])


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
    given = {
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
        "cu_seq_lens_q": ends.int(),
    }
    options = {told: given[told], "position_ids": given["position_ids"]}
    packed = model(WITH_MASKS[REAL.bool()][None], **options).last_hidden_state[0]
    assert_same(packed, torch.cat(alone), *model.parameters(), tolerance=1e-11)


def test_embeddings_given_by_hand_are_taken_as_they_are():
    model = jittered(QkvEncoderModel(encoder(**MASKED))).eval()
    plain = jittered(QkvEncoderModel(encoder(**{**MASKED, "scale_embedding": False}))).eval()
    plain.load_state_dict(model.state_dict())
    given = model.embed_tokens(IDS)
    assert torch.equal(model(inputs_embeds=given)[0], plain(IDS)[0]) and not torch.equal(model(IDS)[0], plain(IDS)[0])


SPECIAL = {
    "none": {"class_token": False, "pooling": "mean"},
    "class": {},
    "distillation": {"class_token": False, "distillation_token": True, "pooling": "mean"},
    "both": {"distillation_token": True},
}
NAMES = {"none": [], "class": ["class_token"], "distillation": ["distillation_token"]}


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("size", [(6, 10), (4, 14), (2, 2)])
@pytest.mark.parametrize("masked", [False, True], ids=["all seen", "some masked"])
def test_patches(special, size, masked):
    frontend, pixels = patches(**SPECIAL[special]), draw(3, 3, *size)
    expected = reference.patch_embeddings(pixels, frontend.projection.weight, frontend.projection.bias)
    hidden = torch.arange(3 * expected.shape[1]).view(3, -1) % 3 == 1 if masked else None
    if masked:
        expected = torch.stack(
            [
                torch.stack([frontend.mask_token[0, 0] if gone else vector for vector, gone in zip(*row, strict=True)])
                for row in zip(expected, hidden, strict=True)
            ]
        )
    tokens = [getattr(frontend, name) for name in NAMES.get(special, ["class_token", "distillation_token"])]
    expected = torch.stack([torch.cat([*(token[0] for token in tokens), row]) for row in expected])
    leaves = [frontend.projection.weight, frontend.projection.bias, *tokens]
    actual = frontend(pixels, bool_masked_pos=hidden, interpolate_pos_encoding=True)
    assert actual.grid == (size[0] // 2, size[1] // 2)
    assert_same(actual.hidden, expected, pixels, *leaves, *([frontend.mask_token] if masked else []))


@pytest.mark.parametrize("word", [{"position": "grid"}, {"pattern": "row"}, {"pattern": "column"}], ids=str)
def test_rows_of_another_length_are_refused_where_they_count(word):
    ((name, value),) = word.items()
    frontend = patches(**word)
    assert frontend(draw(1, 3, 4, 10), interpolate_pos_encoding=True).grid == (2, 5)
    with raises_sentence("4x14", "7", f"{name}={value!r}", "5", "image_size=[6, 10]"):
        frontend(draw(1, 3, 4, 14), interpolate_pos_encoding=True)


def detection_encoder(**fields):
    return QkvDetectionEncoderConfig(hidden_size=8, num_attention_heads=2, **fields)


def test_patches_of_a_detector_tile_an_image_of_any_size():
    frontend = jittered(DETECTION_FRONTENDS["patches"](detection_encoder(backbone_config=None, patch_size=4)))
    pixels, mask = draw(1, 3, 7, 9), torch.ones(1, 7, 9)
    mask[..., 8:] = 0
    embedded = frontend(pixels, mask)
    assert embedded.grid == (2, 3) and embedded.padding_mask.tolist() == [[True, True, False] * 2]
    padded = torch.nn.functional.pad(pixels, (0, 3, 0, 1))
    expected = reference.patch_embeddings(padded, frontend.projection.weight, frontend.projection.bias)
    assert_same(embedded.hidden, expected, pixels)
    assert torch.equal(frontend(pixels).hidden, embedded.hidden) and frontend(pixels).padding_mask is None


def test_a_feature_map_is_the_last_of_the_backbone_and_its_norms_stay():
    backbone = {"model_type": "resnet", "embedding_size": 6, "hidden_sizes": [6, 10], "depths": [1, 1]}
    config = detection_encoder(backbone_config={**backbone, "out_features": ["stage1", "stage2"]})
    frontend = DETECTION_FRONTENDS["feature_map"](config)
    hidden, mask, grid = frontend(torch.randn(2, 3, 33, 47), torch.ones(2, 33, 47))
    assert hidden.shape == (2, 30, 8) and grid == (5, 6) and mask.shape == (2, 30) and mask.all()
    assert len(frontend.frozen_norms()) == 8 and all(weight.requires_grad for weight in frontend.parameters())
    assert not any(list(norm.parameters()) for norm in frontend.frozen_norms())


def test_object_queries_start_as_zeros():
    frontend = DETECTION_FRONTENDS["object_queries"](
        QkvDetectionDecoderConfig(hidden_size=8, num_attention_heads=2, num_queries=5)
    )
    assert torch.equal(frontend(draw(2, 3, 8)).hidden, torch.zeros(2, 5, 8, dtype=torch.float64))
