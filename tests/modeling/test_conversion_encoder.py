"""What is peculiar to the encoders' tables."""

import pytest
import torch
import transformers

import qkv
import tiny
from families import variant
from families_base import PAD

BERT = {"type_vocab_size": 2, "norm_first": False, "embedding_norm": True}


def test_roberta_counts_positions_from_the_padding_id() -> None:
    official = variant("roberta", "Model", "", pad_token_id=4, max_position_embeddings=20).build()
    ours = qkv.from_transformers(official)
    assert (ours.config.position_offset, ours.config.max_position_embeddings) == (5, 15)
    assert ours.position.table.weight.shape == (20, 32)
    back = qkv.to_transformers(ours).config
    assert (back.max_position_embeddings, back.pad_token_id) == (20, 4)


def test_what_starts_at_zero_is_bert_and_what_starts_after_padding_is_roberta() -> None:
    model = qkv.QkvEncoderForMaskedLM
    assert type(qkv.to_transformers(model(tiny.encoder(**BERT)))) is transformers.BertForMaskedLM
    after = model(tiny.encoder(**BERT, position_offset=PAD + 1))
    assert type(qkv.to_transformers(after)) is transformers.RobertaForMaskedLM


def test_robertas_classifier_has_the_pooler_inside() -> None:
    official = variant("roberta", "ForSequenceClassification", "").build()
    ours = qkv.from_transformers(official)
    assert ours.config.pooling == "dense"
    assert torch.equal(ours.model.pooler.dense.weight, official.classifier.dense.weight)
    assert torch.equal(ours.classifier.bias, official.classifier.out_proj.bias)


@pytest.mark.parametrize(("architecture", "with_pooler"), [("bert", True), ("vit", True), ("vit", False)])
def test_a_base_model_keeps_its_pooler_or_goes_without(architecture: str, with_pooler: bool) -> None:
    prefix = {"bert": "BertModel", "vit": "ViTModel"}[architecture]
    official = getattr(transformers, prefix)(variant(architecture, "Model", "").config(), add_pooling_layer=with_pooler)
    ours = qkv.from_transformers(official)
    assert ours.config.pooling == ("dense" if with_pooler else "first")
    assert (qkv.to_transformers(ours).pooler is None) != with_pooler


def test_classifier_dropout_is_that_of_the_layers_unless_set() -> None:
    unset = qkv.from_transformers(variant("bert", "ForSequenceClassification", "").build())
    assert unset.config.classifier_dropout == unset.config.residual_dropout == 0.2
    chosen = qkv.from_transformers(variant("bert", "ForSequenceClassification", "", classifier_dropout=0.0).build())
    assert chosen.config.classifier_dropout == 0.0
    assert qkv.to_transformers(chosen).config.classifier_dropout == 0.0


def test_images_and_patches_may_have_two_sides() -> None:
    ours = qkv.from_transformers(variant("vit", "Model", "", image_size=[12, 20], patch_size=[4, 4]).build())
    assert ours.config.image_shape == (12, 20) and ours.config.patch_size == 4
    with pytest.raises(ValueError, match="patch_size"):
        qkv.from_transformers(variant("vit", "Model", "", image_size=[12, 20], patch_size=[4, 5]).build())


@pytest.mark.parametrize("pooling", ["first", "distilled"])
def test_a_distillation_token_makes_deit(pooling: str) -> None:
    config = tiny.vision("deit", image_size=12, pooling=pooling)
    stock = qkv.to_transformers(qkv.QkvEncoderForImageClassification(config))
    assert type(stock).__name__ == "DeiTForImageClassification" + {"first": "", "distilled": "WithTeacher"}[pooling]


def test_masked_images_are_painted_in_patches() -> None:
    stock = qkv.to_transformers(qkv.QkvEncoderForMaskedImageModeling(tiny.vision(drop_path_rate=0.0)))
    assert stock.config.encoder_stride == stock.config.patch_size == 4
