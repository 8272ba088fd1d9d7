"""Conversion of encoders with rotary positions, as tables: ModernBERT, ESM-2 and its forerunner ESM-1b, Nomic, Jina.

In training, stock ModernBERT drops out parts of the attention branch at `attention_dropout`, and ours does not. Stock
ESM passes `inputs_embeds` by its embeddings: it adds no positions and no norm to them, where ours does.
"""

from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from .config import Architecture, Codec, Head, Values, renames, translated
from .decoder import CLASSIFIER_ACT, LAYER_PATTERN, ROPE_OF_PATTERNS, WHOLE_ROPE
from .encoder import (
    ANSWERS,
    BERT_FIELDS,
    BERT_WORDS,
    CLASSIFIER,
    LAYER_DROPOUT,
    MODEL,
    POOLED,
    POOLING,
    POST_NORM,
    STACK_FIELDS,
    TEXTS,
    TOKENS,
    WORDS,
)
from .weights import ROWS

# A window of theirs counts both sides of a token, ours one side and the token.
BOTH_SIDES = Codec(
    "sliding_window",
    read=lambda width, theirs: width // 2 + 1,
    write=lambda window, ours: 2 * ((window or 1) - 1),
)
TRANSFORM = ("transform.{dense,norm}", "head.{dense,norm}")
TRANSFORMED = (TRANSFORM, *CLASSIFIER)
MODERNBERT = Architecture(
    "modernbert",
    QkvEncoderConfig,
    {
        **renames(
            "activation_dropout=mlp_dropout hidden_act=hidden_activation head_bias=classifier_bias "
            "lm_head_bias=decoder_bias"
        ),
        # Only a tokenizer reads them; ours carries them along.
        **renames("cls_token_id sep_token_id"),
        **{"head_act": CLASSIFIER_ACT, "pattern": LAYER_PATTERN, "rope_parameters": ROPE_OF_PATTERNS},
        "sliding_window": replace(BOTH_SIDES, name="local_attention"),
        "pooling": translated("classifier_pooling", {"cls": "first", "mean": "mean"}),
    },
    {
        **{"position": "rope", "feed_forward": "glu", "type_vocab_size": 0},
        **{"embedding_norm": "instead", "head_transform": True},
    },
    ROWS["modernbert"],
    (
        Head("Model", free=POOLING),
        Head("ForMaskedLM", (("lm_head.{dense,norm,decoder}", "{head.dense,head.norm,decoder}"),), free=POOLING),
        Head("ForSequenceClassification", TRANSFORMED),
        Head("ForTokenClassification", TRANSFORMED, free=POOLING),
        Head("ForMultipleChoice", TRANSFORMED),
        Head(
            "ForQuestionAnswering",
            (TRANSFORM, ("qa_outputs", "classifier")),
            fields={"qa_dropout": "classifier_dropout"},
            free=f"{POOLING} classifier_dropout",
        ),
    ),
    prefix="model.",
    # How it was initialised, how it is run, and repetitions of `layer_types` and `norm_eps`.
    inert="initializer_cutoff_factor deterministic_flash_attn repad_logits_with_grad global_attn_every_n_layers "
    "layer_norm_eps",
    assumed={"position_embedding_type": "absolute"},
)


def first_row(theirs: Values) -> int:
    """Return the row of the table of positions that the first token has, which rotary positions have none of."""
    return theirs["pad_token_id"] + 1 if theirs["position_embedding_type"] == "absolute" else 0


def our_rope(theta: float, theirs: Values) -> Values | None:
    """Return the parameters of a rotation by this base, None where there is none."""
    return {"rope_type": "default", "rope_theta": theta} if theirs["position_embedding_type"] == "rotary" else None


ESM = Architecture(
    "esm",
    QkvEncoderConfig,
    {
        # It has no dropout of embeddings.
        **{name: theirs for name, theirs in STACK_FIELDS.items() if name != "embedding_dropout"},
        "embedding_norm": Codec("emb_layer_norm_before", read=lambda normed, theirs: bool(normed)),
        "position": translated("position_embedding_type", {"rotary": "rope", "absolute": "learned"}),
        "rope_parameters": Codec("rope_theta", our_rope, lambda rope, ours: (rope or {}).get("rope_theta", 10000.0)),
        # The rows of the table below the first position belong to its length.
        "max_position_embeddings": Codec(
            "max_position_embeddings",
            read=lambda rows, theirs: rows - first_row(theirs),
            write=lambda length, ours: length + (ours["position_offset"] if ours["position"] == "learned" else 0),
        ),
        "position_offset": Codec(
            "pad_token_id",
            read=lambda pad, theirs: first_row(theirs),
            write=lambda offset, ours: offset - 1 if ours["position"] == "learned" else ours["pad_token_id"],
        ),
    },
    {"contact_head": "attention"},
    ROWS["esm"],
    (
        MODEL,
        # Without a pooler theirs is this class, too, by predict_contacts.
        Head("ForContactPrediction", theirs="Model", prefix="", free=POOLING),
        Head("ForMaskedLM", ROWS["esm_words"], free=POOLING),
        replace(TEXTS, fields={"pooling_dropout": "hidden_dropout_prob", **LAYER_DROPOUT}),
        Head("ForTokenClassification", CLASSIFIER, fields=LAYER_DROPOUT, free=POOLING),
    ),
    prefix="esm.",
    free="inv_freq_dtype",
    # A cache is for is_decoder=True and the config of a fold for is_folding_model=True, which are refused; classifiers
    # drop out at the rate of the layers.
    inert="use_cache esmfold_config vocab_list classifier_dropout",
    assumed={"hidden_act": "gelu"},
)

NOMIC_BERT = Architecture(
    "nomic_bert",
    QkvEncoderConfig,
    {**BERT_FIELDS, **WHOLE_ROPE},
    {**POST_NORM, **POOLED, "position": "rope", "feed_forward": "glu", "attention_bias": False, "mlp_bias": False},
    (*ROWS["rotary_bert"], ("layers.*.mlp.{gate,up,down}_proj", "layers.*.mlp.{gate,up,down}_proj")),
    (MODEL, replace(BERT_WORDS, rows=ROWS["nomic_words"]), Head("ForSequenceClassification", CLASSIFIER), TOKENS),
    prefix="nomic_bert.",
    # Whether words are tied is no field there: they are.
    assumed={"tie_word_embeddings": True},
)
JINA_V3 = Architecture(
    "jina_embeddings_v3",
    QkvEncoderConfig,
    {**BERT_FIELDS, **WHOLE_ROPE},
    {**POST_NORM, **POOLED, "position": "rope"},
    (*ROWS["rotary_bert"], ("layers.*.mlp.{up,down}_proj", "layers.*.mlp.{fc1,fc2}")),
    (MODEL, WORDS, TEXTS, TOKENS, ANSWERS),
    prefix="roberta.",
    inert="use_cache",
)

ROTARY_ENCODERS = (MODERNBERT, ESM, NOMIC_BERT, JINA_V3)
