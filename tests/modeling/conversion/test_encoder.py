"""What is peculiar to the tables of encoders over tokens."""

import pytest
import torch
import transformers
from torch import nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

import qkv
import tiny
from families import variant
from families.base import PAD

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


@pytest.mark.parametrize("with_pooler", [True, False])
def test_a_base_model_keeps_its_pooler_or_goes_without(with_pooler: bool) -> None:
    official = transformers.BertModel(variant("bert", "Model", "").config(), add_pooling_layer=with_pooler)
    ours = qkv.from_transformers(official)
    assert ours.config.pooling == ("dense" if with_pooler else "first")
    assert (qkv.to_transformers(ours).pooler is None) != with_pooler


def test_classifier_dropout_is_that_of_the_layers_unless_set() -> None:
    unset = qkv.from_transformers(variant("bert", "ForSequenceClassification", "").build())
    assert unset.config.classifier_dropout == unset.config.residual_dropout == 0.2
    chosen = qkv.from_transformers(variant("bert", "ForSequenceClassification", "", classifier_dropout=0.0).build())
    assert chosen.config.classifier_dropout == 0.0
    assert qkv.to_transformers(chosen).config.classifier_dropout == 0.0


def rates(model: PreTrainedModel) -> dict[str, float]:
    return {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)}


@pytest.mark.parametrize("architecture", ["roberta", "electra"])
def test_a_classifier_with_two_maps_has_a_dropout_before_each(architecture: str) -> None:
    row = variant(architecture, "ForSequenceClassification", "", classifier_dropout=0.4)
    official = row.build()
    ours = qkv.from_transformers(official)
    assert (ours.model.pooler.dropout.p, ours.dropout.p) == (0.4, 0.4)
    assert rates(qkv.to_transformers(ours)) == rates(official)


def test_robertas_choices_are_dropped_out_like_its_layers() -> None:
    official = variant("roberta", "ForMultipleChoice", "", classifier_dropout=0.4).build()
    ours = qkv.from_transformers(official)
    assert ours.dropout.p == official.dropout.p == qkv.to_transformers(ours).dropout.p == 0.2


@pytest.mark.parametrize("hidden_act", ["gelu", "relu"])
@pytest.mark.parametrize(("architecture", "head"), [("roberta", "ForMaskedLM"), ("electra", "ForMaskedLM")])
def test_scores_of_words_come_through_gelu_whatever_the_layers_have(
    architecture: str, head: str, hidden_act: str
) -> None:
    ours = qkv.from_transformers(variant(architecture, head, "", hidden_act=hidden_act).build())
    assert ours.config.head_act == (None if hidden_act == "gelu" else "gelu")
    assert type(ours.lm_head.act_fn) is type(ACT2FN["gelu"])
    assert qkv.to_transformers(ours).config.hidden_act == hidden_act


def test_a_word_for_what_stands_there_anyway_is_no_obstacle() -> None:
    for head_act in (None, "gelu"):
        ours = qkv.QkvEncoderForMaskedLM(tiny.encoder(**BERT, position_offset=PAD + 1, head_act=head_act))
        assert type(qkv.to_transformers(ours)) is transformers.RobertaForMaskedLM


def test_xlm_roberta_comes_back_as_the_roberta_it_is() -> None:
    official = variant("xlm-roberta", "ForTokenClassification", "").build()
    assert type(qkv.to_transformers(qkv.from_transformers(official))) is transformers.RobertaForTokenClassification


def test_electras_embeddings_may_be_narrow() -> None:
    ours = qkv.from_transformers(variant("electra", "ForMaskedLM", "").build())
    assert ours.config.embedding_size == 20
    assert ours.model.embed_projection.weight.shape == (32, 20)
    assert ours.lm_head.decoder.weight is ours.model.embed_tokens.weight
    with pytest.raises(ValueError, match="embedding_size=20 would become 32"):
        qkv.to_transformers(qkv.QkvEncoderForPreTraining(tiny.encoder(**BERT, pooling="dense", embedding_size=20)))


def test_electra_of_one_width_is_bert_where_their_heads_are_one() -> None:
    detector = variant("electra", "ForPreTraining", "", embedding_size=32).build()
    assert type(qkv.to_transformers(qkv.from_transformers(detector))) is transformers.ElectraForPreTraining
    tagger = variant("electra", "ForTokenClassification", "", embedding_size=32).build()
    assert type(qkv.to_transformers(qkv.from_transformers(tagger))) is transformers.BertForTokenClassification


def test_electras_summary_is_a_dense_pooler() -> None:
    official = variant("electra", "ForMultipleChoice", "").build()
    ours = qkv.from_transformers(official)
    assert (ours.config.pooling, ours.config.head_act, ours.config.classifier_dropout) == ("dense", "gelu", 0.4)
    assert torch.equal(ours.model.pooler.dense.weight, official.sequence_summary.summary.weight)


def test_distilberts_heads_have_dropouts_of_their_own() -> None:
    heads = {
        "ForSequenceClassification": 0.4,
        "ForMultipleChoice": 0.4,
        "ForTokenClassification": 0.2,
        "ForQuestionAnswering": 0.15,
    }
    for head, rate in heads.items():
        official = variant("distilbert", head, "").build()
        ours = qkv.from_transformers(official)
        assert ours.dropout.p == official.dropout.p == qkv.to_transformers(ours).dropout.p == rate


def test_no_token_types_make_distilbert() -> None:
    config = tiny.encoder(**{**BERT, "type_vocab_size": 0}, norm_eps=1e-12, qa_dropout=0.1, num_labels=2)
    stock = qkv.to_transformers(qkv.QkvEncoderForQuestionAnswering(config))
    assert type(stock) is transformers.DistilBertForQuestionAnswering and stock.config.qa_dropout == 0.1
