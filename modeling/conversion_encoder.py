"""Which published encoders are ours? BERT and RoBERTa over tokens, ViT and DeiT over patches, as tables."""

from dataclasses import replace

from ..configuration.configuration_encoder import QkvEncoderConfig
from .conversion_config import BASE, Architecture, Codec, Fields, Head, activation, canonical, same
from .modeling_encoder import (
    QkvEncoderForMultipleChoice,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
)
from .modeling_encoder_image import QkvEncoderForImageClassification, QkvEncoderForMaskedImageModeling
from .modeling_encoder_pretraining import QkvEncoderForMaskedLM, QkvEncoderForPreTraining

POOLED = {"pooling": "dense"}
UNPOOLED = {"pooling": "first"}
CLASSIFIER = (("classifier", "classifier"),)

STACK_FIELDS: Fields = {
    **same("hidden_size num_hidden_layers num_attention_heads intermediate_size initializer_range"),
    "hidden_act": activation("hidden_act"),
    "norm_eps": "layer_norm_eps",
    "embedding_dropout": "hidden_dropout_prob",
    "residual_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
BERT_FIELDS: Fields = {
    **STACK_FIELDS,
    **same("vocab_size pad_token_id bos_token_id eos_token_id tie_word_embeddings"),
    # Where nobody has set it, the dropout before a classifier is that of the layers.
    "classifier_dropout": Codec(
        "classifier_dropout", read=lambda rate, theirs: theirs["hidden_dropout_prob"] if rate is None else rate
    ),
    # Its table of token types cannot be empty.
    "type_vocab_size": Codec("type_vocab_size", write=lambda kinds, ours: max(kinds, 1)),
}
BERT_ROWS = (
    ("embed_tokens", "embeddings.word_embeddings"),
    ("embed_token_types", "embeddings.token_type_embeddings"),
    ("position.table", "embeddings.position_embeddings"),
    ("embed_norm", "embeddings.LayerNorm"),
    ("layers.*.self_attn.{q,k,v}_proj", "encoder.layer.*.attention.self.{query,key,value}"),
    ("layers.*.self_attn.o_proj", "encoder.layer.*.attention.output.dense"),
    ("layers.*.self_attn_residual.norm", "encoder.layer.*.attention.output.LayerNorm"),
    ("layers.*.mlp.up_proj", "encoder.layer.*.intermediate.dense"),
    ("layers.*.mlp.down_proj", "encoder.layer.*.output.dense"),
    ("layers.*.mlp_residual.norm", "encoder.layer.*.output.LayerNorm"),
    ("pooler.dense", "pooler.dense"),
)
VIT_ROWS = (
    ("embed_tokens.class_token", "embeddings.cls_token"),
    ("embed_tokens.mask_token", "embeddings.mask_token"),
    ("embed_tokens.projection", "embeddings.patch_embeddings.projection"),
    ("position.table.weight", "embeddings.position_embeddings", "lead"),
    ("layers.*.self_attn.{q,k,v,o}_proj", "layers.*.attention.{q,k,v,o}_proj"),
    ("layers.*.self_attn_residual.norm", "layers.*.layernorm_before"),
    ("layers.*.mlp.{up,down}_proj", "layers.*.mlp.{fc1,fc2}"),
    ("layers.*.mlp_residual.norm", "layers.*.layernorm_after"),
    ("norm", "layernorm"),
    ("pooler.dense", "pooler.dense"),
)
MASKED_LM = (
    ("lm_head.dense", "cls.predictions.transform.dense"),
    ("lm_head.norm", "cls.predictions.transform.LayerNorm"),
    ("lm_head.decoder.weight", "cls.predictions.decoder.weight"),
    ("lm_head.decoder.bias", "cls.predictions.{decoder.bias,bias}", "tie"),
)


def base(name: str) -> tuple[Head, ...]:
    """The base model with and without the pooler that it can be built with."""
    with_pooler = Head(QkvEncoderModel, name, words=POOLED, pooler=True, prefixes=BASE)
    return with_pooler, Head(QkvEncoderModel, name, words=UNPOOLED, pooler=False, prefixes=BASE)


def text_heads(name: str) -> tuple[Head, ...]:
    """The classes in which BERT and RoBERTa do not differ."""
    return (
        *base(f"{name}Model"),
        Head(QkvEncoderForMultipleChoice, f"{name}ForMultipleChoice", CLASSIFIER, POOLED),
        Head(QkvEncoderForTokenClassification, f"{name}ForTokenClassification", CLASSIFIER),
        Head(QkvEncoderForQuestionAnswering, f"{name}ForQuestionAnswering", (("qa_outputs", "qa_outputs"),)),
    )


def image_heads(name: str) -> tuple[Head, ...]:
    """The classes in which ViT and DeiT do not differ; the stride of the pixel decoder is the patch size."""
    pixels, stride = (("decoder.projection", "decoder.0"),), {"patch_size": "encoder_stride"}
    return (
        *base(f"{name}Model"),
        Head(QkvEncoderForImageClassification, f"{name}ForImageClassification", CLASSIFIER, UNPOOLED),
        Head(QkvEncoderForMaskedImageModeling, f"{name}ForMaskedImageModeling", pixels, fields=stride),
    )


BERT = Architecture(
    "bert",
    QkvEncoderConfig,
    {**BERT_FIELDS, **same("max_position_embeddings")},
    {"norm_first": False, "embedding_norm": True, **POOLED},
    BERT_ROWS,
    (
        *text_heads("Bert"),
        Head(QkvEncoderForMaskedLM, "BertForMaskedLM", MASKED_LM),
        Head(
            QkvEncoderForPreTraining,
            "BertForPreTraining",
            (*MASKED_LM, ("seq_relationship", "cls.seq_relationship")),
            POOLED,
        ),
        Head(QkvEncoderForSequenceClassification, "BertForSequenceClassification", CLASSIFIER, POOLED),
    ),
    prefixes=("model.", "bert."),
    # A cache is for is_decoder=True, which is refused; the others describe the first release.
    inert=frozenset(
        "use_cache directionality pooler_type pooler_fc_size pooler_num_fc_layers pooler_num_attention_heads "
        "pooler_size_per_head".split()
    ),
    assumed={"position_embedding_type": "absolute"},
)
# Positions are counted from the padding id + 1, and the rows of the table below that belong to the length.
ROBERTA = replace(
    BERT,
    model_type="roberta",
    fields={
        **BERT_FIELDS,
        "position_offset": Codec("pad_token_id", lambda pad, theirs: pad + 1, lambda offset, ours: max(offset - 1, 0)),
        "max_position_embeddings": Codec(
            "max_position_embeddings",
            read=lambda rows, theirs: rows - theirs["pad_token_id"] - 1,
            write=lambda length, ours: length + ours["position_offset"],
        ),
    },
    heads=(
        *text_heads("Roberta"),
        Head(
            QkvEncoderForMaskedLM,
            "RobertaForMaskedLM",
            (
                ("lm_head.dense", "lm_head.dense"),
                ("lm_head.norm", "lm_head.layer_norm"),
                ("lm_head.decoder.weight", "lm_head.decoder.weight"),
                ("lm_head.decoder.bias", "lm_head.{decoder.bias,bias}", "tie"),
            ),
            {"hidden_act": "gelu"},  # this head's, whatever the layers have
        ),
        Head(
            QkvEncoderForSequenceClassification,
            "RobertaForSequenceClassification",
            (("model.pooler.dense", "classifier.dense"), ("classifier", "classifier.out_proj")),
            POOLED,
        ),
    ),
    prefixes=("model.", "roberta."),
)
VIT = Architecture(
    "vit",
    QkvEncoderConfig,
    {
        **STACK_FIELDS,
        **same("image_size num_channels"),
        "patch_size": Codec("patch_size", read=lambda size, theirs: canonical(size)),
    },
    {"frontend": "patches", **UNPOOLED},
    VIT_ROWS,
    image_heads("ViT"),
    prefixes=("model.", "vit."),
    inert=frozenset({"encoder_stride"}),
)
DEIT = replace(
    VIT,
    model_type="deit",
    words={**VIT.words, "distillation_token": True},
    rows=(*VIT_ROWS, ("embed_tokens.distillation_token", "embeddings.distillation_token")),
    heads=(
        *image_heads("DeiT"),
        Head(
            QkvEncoderForImageClassification,
            "DeiTForImageClassificationWithTeacher",
            (("classifier.{class,distillation}_classifier", "{cls,distillation}_classifier"),),
            {"pooling": "distilled"},
        ),
    ),
    prefixes=("model.", "deit."),
)

ENCODERS = (DEIT, VIT, ROBERTA, BERT)
