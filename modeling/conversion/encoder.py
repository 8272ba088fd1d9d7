"""Conversion of text encoders: BERT, RoBERTa, DistilBERT and ELECTRA, as tables.

In training, ours drops out parts of both branches of DistilBERT's layers, where stock DistilBERT spares the attention.
"""

from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from ..base import QkvPreTrainedModel
from ..modeling_encoder import (
    QkvEncoderForMultipleChoice,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
)
from ..modeling_encoder_pretraining import (
    QkvEncoderForMaskedLM,
    QkvEncoderForPreTraining,
    QkvEncoderForReplacedTokenDetection,
)
from .config import AFTER_PADDING, BASE, SYNONYMS, Architecture, Codec, Fields, Head, activation, same

POOLED = {"pooling": "dense"}
UNPOOLED = {"pooling": "first"}
POST_NORM = {"norm_first": False, "embedding_norm": True}
CLASSIFIER = (("classifier", "classifier"),)
QA_OUTPUTS = (("qa_outputs", "qa_outputs"),)

STACK_FIELDS: Fields = {
    **same("hidden_size num_hidden_layers num_attention_heads intermediate_size initializer_range"),
    "hidden_act": activation("hidden_act"),
    "norm_eps": "layer_norm_eps",
    "embedding_dropout": "hidden_dropout_prob",
    "residual_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
TEXT_FIELDS: Fields = same(
    "vocab_size max_position_embeddings pad_token_id bos_token_id eos_token_id tie_word_embeddings"
)
# Where nobody has set it, the dropout before a classifier is that of the layers.
CLASSIFIER_DROPOUT = Codec(
    "classifier_dropout", read=lambda rate, theirs: theirs["hidden_dropout_prob"] if rate is None else rate
)
# The activation of a head that is GELU, whatever the layers have.
ALWAYS_GELU = Codec(
    "hidden_act",
    read=lambda act, theirs: None if SYNONYMS.get(act, act) == "gelu" else "gelu",
    write=lambda act, ours: ours["hidden_act"],
)
BERT_FIELDS: Fields = {
    **STACK_FIELDS,
    **TEXT_FIELDS,
    "classifier_dropout": CLASSIFIER_DROPOUT,
    # Its table of token types cannot be empty.
    "type_vocab_size": Codec("type_vocab_size", write=lambda kinds, ours: max(kinds, 1)),
}
BERT_EMBEDDINGS = (
    ("embed_tokens", "embeddings.word_embeddings"),
    ("position.table", "embeddings.position_embeddings"),
    ("embed_norm", "embeddings.LayerNorm"),
)
BERT_ROWS = (
    *BERT_EMBEDDINGS,
    ("embed_token_types", "embeddings.token_type_embeddings"),
    ("layers.*.self_attn.{q,k,v}_proj", "encoder.layer.*.attention.self.{query,key,value}"),
    ("layers.*.self_attn.o_proj", "encoder.layer.*.attention.output.dense"),
    ("layers.*.self_attn_residual.norm", "encoder.layer.*.attention.output.LayerNorm"),
    ("layers.*.mlp.up_proj", "encoder.layer.*.intermediate.dense"),
    ("layers.*.mlp.down_proj", "encoder.layer.*.output.dense"),
    ("layers.*.mlp_residual.norm", "encoder.layer.*.output.LayerNorm"),
    ("pooler.dense", "pooler.dense"),
)
# Where a classifier has two maps, the first is our pooler's.
POOLED_CLASSIFIER = (("model.pooler.dense", "classifier.dense"), ("classifier", "classifier.out_proj"))
PRE_CLASSIFIER = (("model.pooler.dense", "pre_classifier"), *CLASSIFIER)
MASKED_LM = (
    ("lm_head.dense", "cls.predictions.transform.dense"),
    ("lm_head.norm", "cls.predictions.transform.LayerNorm"),
    ("lm_head.decoder.weight", "cls.predictions.decoder.weight"),
    ("lm_head.decoder.bias", "cls.predictions.{decoder.bias,bias}", "tie"),
)
ROBERTA_MASKED_LM = (
    ("lm_head.{dense,norm}", "lm_head.{dense,layer_norm}"),
    ("lm_head.decoder.weight", "lm_head.decoder.weight"),
    ("lm_head.decoder.bias", "lm_head.{decoder.bias,bias}", "tie"),
)


def base(name: str, model_class: type[QkvPreTrainedModel] = QkvEncoderModel) -> tuple[Head, ...]:
    """Return the base model with and without the pooler that it can be built with."""
    with_pooler = Head(model_class, name, words=POOLED, pooler=True, prefixes=BASE)
    return with_pooler, Head(model_class, name, words=UNPOOLED, pooler=False, prefixes=BASE)


def token_heads(name: str) -> tuple[Head, ...]:
    """Return the classes that score each token, alike in BERT, RoBERTa and ELECTRA."""
    return (
        Head(QkvEncoderForTokenClassification, f"{name}ForTokenClassification", CLASSIFIER),
        Head(QkvEncoderForQuestionAnswering, f"{name}ForQuestionAnswering", QA_OUTPUTS),
    )


BERT = Architecture(
    "bert",
    QkvEncoderConfig,
    BERT_FIELDS,
    {**POST_NORM, **POOLED},
    BERT_ROWS,
    (
        *base("BertModel"),
        *token_heads("Bert"),
        Head(QkvEncoderForMultipleChoice, "BertForMultipleChoice", CLASSIFIER, POOLED),
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


def roberta_heads(name: str) -> tuple[Head, ...]:
    """Return the classes of RoBERTa and of XLM-RoBERTa."""
    return (
        *base(f"{name}Model"),
        *token_heads(name),
        Head(
            QkvEncoderForMultipleChoice,
            f"{name}ForMultipleChoice",
            CLASSIFIER,
            POOLED,
            # Here alone a dropout of its own is not asked for.
            {"classifier_dropout": "hidden_dropout_prob"},
            inert=frozenset({"classifier_dropout"}),
        ),
        Head(
            QkvEncoderForMaskedLM,
            f"{name}ForMaskedLM",
            ROBERTA_MASKED_LM,
            fields={"head_act": ALWAYS_GELU},
        ),
        Head(
            QkvEncoderForSequenceClassification,
            f"{name}ForSequenceClassification",
            POOLED_CLASSIFIER,
            POOLED,
            {"pooling_dropout": CLASSIFIER_DROPOUT},
        ),
    )


# The rows of the table below the first position belong to its length.
ROBERTA = replace(
    BERT,
    model_type="roberta",
    fields={
        **BERT_FIELDS,
        "position_offset": AFTER_PADDING,
        "max_position_embeddings": Codec(
            "max_position_embeddings",
            read=lambda rows, theirs: rows - theirs["pad_token_id"] - 1,
            write=lambda length, ours: length + ours["position_offset"],
        ),
    },
    heads=roberta_heads("Roberta"),
    prefixes=("model.", "roberta."),
)
# The same model under another name, so that ours goes back as a RoBERTa.
XLM_ROBERTA = replace(ROBERTA, model_type="xlm-roberta", heads=roberta_heads("XLMRoberta"))

SUMMARY = frozenset("summary_type summary_use_proj summary_activation summary_last_dropout".split())
ELECTRA_HEADS = (
    Head(QkvEncoderModel, "ElectraModel", words=UNPOOLED, pooler=False, prefixes=BASE),
    *token_heads("Electra"),
    Head(
        QkvEncoderForReplacedTokenDetection,
        "ElectraForPreTraining",
        (("classifier.{dense,score}", "discriminator_predictions.{dense,dense_prediction}"),),
    ),
    Head(
        QkvEncoderForMaskedLM,
        "ElectraForMaskedLM",
        (
            ("lm_head.{dense,norm}", "generator_predictions.{dense,LayerNorm}"),
            ("lm_head.decoder", "generator_lm_head"),
        ),
        fields={"head_act": ALWAYS_GELU},
    ),
    Head(
        QkvEncoderForSequenceClassification,
        "ElectraForSequenceClassification",
        POOLED_CLASSIFIER,
        {**POOLED, "head_act": "gelu"},
        {"pooling_dropout": CLASSIFIER_DROPOUT},
    ),
)
ELECTRA = replace(
    BERT,
    model_type="electra",
    fields={**BERT_FIELDS, "embedding_size": "embedding_size"},
    rows=(*BERT_ROWS, ("embed_projection", "embeddings_project")),
    heads=(
        *(replace(head, inert=SUMMARY) for head in ELECTRA_HEADS),
        Head(
            QkvEncoderForMultipleChoice,
            "ElectraForMultipleChoice",
            (("model.pooler.dense", "sequence_summary.summary"), *CLASSIFIER),
            POOLED,
            {
                "classifier_dropout": "summary_last_dropout",
                "head_act": Codec(
                    "summary_activation",
                    read=lambda act, theirs: SYNONYMS.get(act, act),
                    write=lambda act, ours: act or "tanh",
                ),
            },
            inert=frozenset({"classifier_dropout"}),
        ),
    ),
    prefixes=("model.", "electra."),
)

DISTILBERT = Architecture(
    "distilbert",
    QkvEncoderConfig,
    {
        **TEXT_FIELDS,
        **same("initializer_range attention_dropout qa_dropout"),
        **{"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
        **{"intermediate_size": "hidden_dim", "hidden_act": activation("activation")},
        **{"embedding_dropout": "dropout", "residual_dropout": "dropout"},
        "classifier_dropout": "seq_classif_dropout",
    },
    {**POST_NORM, "norm_eps": 1e-12, "type_vocab_size": 0},
    (
        *BERT_EMBEDDINGS,
        ("layers.*.self_attn.{q,k,v,o}_proj", "transformer.layer.*.attention.{q,k,v,out}_lin"),
        ("layers.*.self_attn_residual.norm", "transformer.layer.*.sa_layer_norm"),
        ("layers.*.mlp.{up,down}_proj", "transformer.layer.*.ffn.{lin1,lin2}"),
        ("layers.*.mlp_residual.norm", "transformer.layer.*.output_layer_norm"),
    ),
    (
        Head(QkvEncoderModel, "DistilBertModel", words=UNPOOLED, pooler=False, prefixes=BASE),
        Head(
            QkvEncoderForMaskedLM,
            "DistilBertForMaskedLM",
            (("lm_head.{dense,norm,decoder}", "vocab_{transform,layer_norm,projector}"),),
        ),
        *(
            Head(ours, f"DistilBertFor{task}", PRE_CLASSIFIER, {**POOLED, "head_act": "relu"})
            for ours, task in (
                (QkvEncoderForSequenceClassification, "SequenceClassification"),
                (QkvEncoderForMultipleChoice, "MultipleChoice"),
            )
        ),
        Head(
            QkvEncoderForTokenClassification,
            "DistilBertForTokenClassification",
            CLASSIFIER,
            fields={"classifier_dropout": "dropout"},
            inert=frozenset({"seq_classif_dropout"}),
        ),
        Head(QkvEncoderForQuestionAnswering, "DistilBertForQuestionAnswering", QA_OUTPUTS),
    ),
    prefixes=("model.", "distilbert."),
    # It says how the table of positions began.
    inert=frozenset({"sinusoidal_pos_embds"}),
    assumed={"tie_weights_": True},
)

ENCODERS = (ROBERTA, XLM_ROBERTA, BERT, DISTILBERT, ELECTRA)
