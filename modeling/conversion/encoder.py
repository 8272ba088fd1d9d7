"""Conversion of text encoders as tables: BERT, RoBERTa, MPNet, DistilBERT, ELECTRA, DeBERTa v2, Longformer, BigBird.

In training, ours drops out parts of both branches of DistilBERT's layers, where stock DistilBERT spares the attention,
and parts of BigBird's embeddings after their norm, where stock BigBird does before it.
"""

from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from .config import (
    AFTER_PADDING,
    SCALED,
    Architecture,
    Codec,
    Fields,
    Head,
    default,
    one_spelling,
    output_bias,
    renames,
    translated,
)
from .decoder import QA_OUTPUTS
from .weights import ROWS

POOLED = {"pooling": "dense"}
UNPOOLED = {"pooling": "first"}
POST_NORM = {"norm_position": "after", "embedding_norm": True}
# Fields that heads on every token do not read.
POOLING = "pooling pooling_dropout"
CLASSIFIER = (("classifier", "classifier"),)

STACK_FIELDS = renames(
    "norm_eps=layer_norm_eps embedding_dropout=hidden_dropout_prob residual_dropout=hidden_dropout_prob "
    "attention_dropout=attention_probs_dropout_prob"
)
# The activation of a head that is GELU, whatever the layers have.
ALWAYS_GELU = Codec(
    "hidden_act",
    read=lambda act, theirs: None if one_spelling(act) == "gelu" else "gelu",
    write=lambda act, ours: ours["hidden_act"],
)
# By default the dropout before a classifier is that of the layers.
CLASSIFIER_DROPOUT = default("classifier_dropout", "hidden_dropout_prob")
LAYER_DROPOUT = {"classifier_dropout": "hidden_dropout_prob"}
BERT_FIELDS: Fields = {
    **STACK_FIELDS,
    "classifier_dropout": CLASSIFIER_DROPOUT,
    # Its table of token types cannot be empty.
    "type_vocab_size": Codec("type_vocab_size", write=lambda kinds, ours: max(kinds, 1)),
}
POOLER = ("pooler.dense", "pooler.dense")
# Where a classifier has two maps, the first is our pooler's.
POOLED_CLASSIFIER = (("model.pooler.dense", "classifier.dense"), ("classifier", "classifier.out_proj"))
# Weights tell whether the base model has the pooler that it can be built with.
MODEL = Head("Model", words=POOLED, free=POOLING)
UNPOOLED_MODEL = replace(MODEL, words=UNPOOLED)
TOKENS = Head("ForTokenClassification", CLASSIFIER, free=POOLING)
ANSWERS = Head("ForQuestionAnswering", QA_OUTPUTS, free=POOLING)
CHOICES = Head("ForMultipleChoice", CLASSIFIER)
# Here theirs always takes the dropout of the layers.
CHOICES_OF_LAYERS = replace(CHOICES, fields=LAYER_DROPOUT, inert="classifier_dropout")
PRETRAINING = Head("ForPreTraining", (*ROWS["bert_words"], ("seq_relationship", "cls.seq_relationship")))
BERT_WORDS = Head("ForMaskedLM", ROWS["bert_words"], free=POOLING)
WORDS = replace(BERT_WORDS, rows=ROWS["roberta_words"], fields={"head_act": ALWAYS_GELU})
TEXTS = Head("ForSequenceClassification", POOLED_CLASSIFIER, POOLED, {"pooling_dropout": CLASSIFIER_DROPOUT})

BERT = Architecture(
    "bert",
    QkvEncoderConfig,
    BERT_FIELDS,
    {**POST_NORM, **POOLED},
    (*ROWS["bert"], POOLER),
    (MODEL, TOKENS, ANSWERS, CHOICES, PRETRAINING, BERT_WORDS, Head("ForSequenceClassification", CLASSIFIER)),
    prefix="bert.",
    # A cache is for is_decoder=True, which is refused; the others describe the first release.
    inert="use_cache directionality pooler_type pooler_fc_size pooler_num_fc_layers pooler_num_attention_heads "
    "pooler_size_per_head",
    assumed={"position_embedding_type": "absolute"},
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
    heads=(MODEL, TOKENS, ANSWERS, CHOICES_OF_LAYERS, WORDS, TEXTS),
    prefix="roberta.",
)
# The same model under another name, so that ours goes back as a RoBERTa.
XLM_ROBERTA = replace(ROBERTA, model_type="xlm-roberta")
# It counts positions from the padding id 1, and has 32 buckets of distances, whatever its config says.
MPNET = replace(
    ROBERTA,
    model_type="mpnet",
    fields={**STACK_FIELDS, "max_position_embeddings": ROBERTA.fields["max_position_embeddings"]},
    words={**ROBERTA.words, "position": "learned_and_t5", "position_offset": 2, "pad_token_id": 1, "type_vocab_size": 0}
    | {"relative_attention_num_buckets": 32},
    rows=ROWS["mpnet"],
    heads=(
        *(MODEL, ANSWERS, WORDS, replace(TOKENS, fields=LAYER_DROPOUT), replace(CHOICES_OF_LAYERS, inert="")),
        replace(TEXTS, fields={**LAYER_DROPOUT, "pooling_dropout": "hidden_dropout_prob"}),
    ),
    prefix="mpnet.",
)

SUMMARY = "summary_type summary_use_proj summary_activation summary_last_dropout"
SUMMARY_ACTIVATION = Codec("summary_activation", write=lambda act, ours: act or "tanh")
REPLACED = (("classifier.{dense,score}", "discriminator_predictions.{dense,dense_prediction}"),)
ELECTRA_HEADS = (
    *(UNPOOLED_MODEL, TOKENS, ANSWERS, replace(WORDS, rows=ROWS["electra_words"])),
    Head("ForReplacedTokenDetection", REPLACED, theirs="ForPreTraining", free=POOLING),
    replace(TEXTS, words={**POOLED, "head_act": "gelu"}),
)
ELECTRA = replace(
    BERT,
    model_type="electra",
    rows=(*BERT.rows, ("embed_projection", "embeddings_project")),
    heads=(
        *(replace(head, inert=SUMMARY) for head in ELECTRA_HEADS),
        replace(
            CHOICES_OF_LAYERS,
            rows=(("model.pooler.dense", "sequence_summary.summary"), *CLASSIFIER),
            fields={"classifier_dropout": "summary_last_dropout", "head_act": SUMMARY_ACTIVATION},
        ),
    ),
    prefix="electra.",
)

PRE_CLASSIFIER = (("model.pooler.dense", "pre_classifier"), *CLASSIFIER)
RELU_POOLED = {**POOLED, "head_act": "relu"}
MASKED_WORDS = (("lm_head.{dense,norm,decoder}", "vocab_{transform,layer_norm,projector}"),)
DISTILBERT = Architecture(
    "distilbert",
    QkvEncoderConfig,
    renames(
        "intermediate_size=hidden_dim hidden_act=activation embedding_dropout=dropout residual_dropout=dropout "
        "classifier_dropout=seq_classif_dropout"
    ),
    {**POST_NORM, "norm_eps": 1e-12, "type_vocab_size": 0},
    ROWS["distilbert"],
    (
        *(UNPOOLED_MODEL, ANSWERS, replace(BERT_WORDS, rows=MASKED_WORDS)),
        Head("ForSequenceClassification", PRE_CLASSIFIER, RELU_POOLED),
        Head("ForMultipleChoice", PRE_CLASSIFIER, RELU_POOLED),
        replace(TOKENS, fields={"classifier_dropout": "dropout"}, inert="seq_classif_dropout"),
    ),
    prefix="distilbert.",
    # It says how the table of positions began.
    inert="sinusoidal_pos_embds",
    assumed={"tie_weights_": True},
)

# Theirs, the same in all layers, counts both sides of a token, ours one side and the token. It has two neighbours on
# either side: with one, stock code cuts its chunks to nothing and raises.
WINDOW = Codec(
    "attention_window",
    read=lambda widths, theirs: (widths if isinstance(widths, int) else widths[0]) // 2 + 1,
    write=lambda window, ours: 2 * max((window or 1) - 1, 2),
)
LOCAL_AND_GLOBAL = {"pattern": "sliding", "global_projections": True}

# Without a `global_attention_mask`, stock Longformer marks the first token to classify a text, as `num_global_tokens=1`
# does here, also beside a mask. To answer and choose it looks for separators; there our heads ask for the mask.
LONGFORMER = replace(
    ROBERTA,
    model_type="longformer",
    fields={**ROBERTA.fields, **renames("sep_token_id"), "sliding_window": WINDOW, **LAYER_DROPOUT},
    words={**ROBERTA.words, **LOCAL_AND_GLOBAL},
    rows=(*ROBERTA.rows, *ROWS["longformer"]),
    heads=(
        *(MODEL, TOKENS, ANSWERS, CHOICES, WORDS),
        replace(TEXTS, words={**POOLED, "num_global_tokens": 1}, fields={"pooling_dropout": "hidden_dropout_prob"}),
    ),
    prefix="longformer.",
    inert=f"{ROBERTA.inert} onnx_export",
    assumed={**ROBERTA.assumed, "attention_mode": "longformer", "ignore_attention_mask": False},
)

# It has weights beside these heads that nothing reads; on the way back they start anew.
UNREAD_POOLER = ("", "bert.pooler.{weight,bias}", "unread")
BIG_BIRD = replace(
    BERT,
    model_type="big_bird",
    fields={
        **BERT.fields,
        "sep_token_id": "sep_token_id",
        "embedding_multiplier": replace(SCALED, name="rescale_embeddings"),
        # Its sparse attention counts the first block 1 + num_random_blocks times in evaluation, and draws blocks by
        # numpy in training, which no pattern here does. For short texts stock code turns to full attention itself.
        "pattern": Codec("attention_type", lambda kind, theirs: "full", lambda pattern, ours: "original_full"),
        "attention_bias": output_bias("use_bias"),
    },
    rows=(*ROWS["bert"], ("pooler.dense", "pooler")),
    heads=(
        *(MODEL, CHOICES_OF_LAYERS, PRETRAINING),
        replace(TOKENS, rows=(*TOKENS.rows, UNREAD_POOLER)),
        replace(BERT_WORDS, rows=(*BERT_WORDS.rows, UNREAD_POOLER)),
        replace(
            TEXTS,
            rows=(*TEXTS.rows, UNREAD_POOLER),
            fields={**TEXTS.fields, "head_act": Codec("hidden_act", write=lambda act, ours: ours["hidden_act"])},
        ),
    ),
    # Fields of sparse attention.
    inert=f"{BERT.inert} block_size num_random_blocks",
)

# It multiplies embeddings of padding by zero, which no real token sees.
POOLED_LATER = Head(
    "ForSequenceClassification",
    (("model.pooler.dense", "pooler.dense"), *CLASSIFIER),
    POOLED,
    {"head_act": "pooler_hidden_act", "pooling_dropout": "pooler_dropout"}
    | {"classifier_dropout": default("cls_dropout", "hidden_dropout_prob")},
)
DEBERTA_HEADS = (
    *(UNPOOLED_MODEL, ANSWERS, replace(TOKENS, fields=LAYER_DROPOUT)),
    *(POOLED_LATER, replace(POOLED_LATER, ours="ForMultipleChoice")),
)
DEBERTA_V2 = Architecture(
    "deberta-v2",
    QkvEncoderConfig,
    {
        **STACK_FIELDS,
        "position": translated("position_biased_input", {False: "disentangled", True: "learned_and_disentangled"}),
        "position_offset": Codec("relative_attention", lambda *_: 0, lambda *_: True),
        "pos_att_type": Codec("pos_att_type", lambda terms, _: "|".join(terms or ()), lambda word, _: word.split("|")),
        "share_att_key": Codec("share_att_key", lambda shared, _: bool(shared)),
        "norm_rel_ebd": Codec("norm_rel_ebd", lambda norm, _: norm or "none"),
        "relative_attention_num_buckets": Codec(
            "position_buckets", lambda count, _: 2 * (count or 0), lambda count, _: count // 2
        ),
        "relative_attention_max_distance": Codec(
            "max_relative_positions",
            lambda most, theirs: most if most > 0 else theirs["max_position_embeddings"],
            lambda most, ours: -1 if most == ours["max_position_embeddings"] else most,
        ),
    },
    POST_NORM,
    ROWS["deberta_v2"],
    (
        *(replace(head, inert="legacy") for head in DEBERTA_HEADS),
        BERT_WORDS,
        replace(
            BERT_WORDS,
            rows=(*ROWS["deberta_words"], ("lm_head.decoder.weight", "", "unread")),
            words={"tie_word_embeddings": True},
            fields={"lm_head_transform": Codec("legacy", lambda *_: True, lambda *_: False)},
        ),
    ),
    prefix="deberta.",
    inert="attention_head_size conv_act conv_groups pooler_dropout pooler_hidden_act cls_dropout",
    assumed={"conv_kernel_size": 0},
)

ENCODERS = (ROBERTA, XLM_ROBERTA, BERT, MPNET, DISTILBERT, ELECTRA, DEBERTA_V2, LONGFORMER, BIG_BIRD)
