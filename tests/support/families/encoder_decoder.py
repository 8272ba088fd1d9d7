"""Official encoder-decoders, every class of each at a tiny size."""

from families.base import (
    END,
    PAD,
    VOCABULARY,
    Family,
    Inputs,
    answers,
    masked_translation_labels,
    sentences,
    text,
    token_labels,
    translation,
    translation_labels,
)

HEADS: dict[str, Inputs] = {"Model": translation, "ForConditionalGeneration": translation_labels}
JUDGES: dict[str, Inputs] = {"ForSequenceClassification": sentences, "ForQuestionAnswering": answers}
ENCODER_ALONE: dict[str, Inputs] = {"EncoderModel": text, "ForTokenClassification": token_labels}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.2}
T5_HEADS = {**HEADS, **JUDGES, **ENCODER_ALONE}
T5_SIZES = {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
BART_SIZES = {
    **{"d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_position_embeddings": 24, "init_std": 0.1},
    **{"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.15},
}
# Their positions count padding too.
RIGHT = ("none", "right")

T5 = Family(
    "t5",
    "T5",
    T5_HEADS,
    {**T5_SIZES, **BUCKETS, "decoder_start_token_id": PAD, "initializer_factor": 0.5, "classifier_dropout": 0.25},
    {"encoder.attention_multiplier": None},
    first_token=tuple(JUDGES),
    translates=True,
)
MT5 = Family(
    "mt5",
    "MT5",
    T5_HEADS,
    T5.config,
    {"encoder.attention_multiplier": None},
    first_token=tuple(JUDGES),
    translates=True,
    stored_as="T5",
)
BART = Family(
    "bart",
    "Bart",
    {**HEADS, **JUDGES},
    {**BART_SIZES, "decoder_start_token_id": END, "classifier_dropout": 0.25},
    {"decoder.position_offset": 1, "decoder.max_position_embeddings": 25},
    sides=RIGHT,
    translates=True,
    padding_idx=True,
)
MBART = Family(
    "mbart",
    "MBart",
    {**HEADS, **JUDGES},
    {**BART_SIZES, "scale_embedding": True, "classifier_dropout": 0.25},
    {"encoder.scale_embedding": False},
    sides=RIGHT,
    translates=True,
    padding_idx=True,
)
MARIAN = Family(
    "marian",
    "Marian",
    {"Model": translation, "MTModel": translation_labels},
    {**BART_SIZES, "decoder_start_token_id": PAD},
    {"encoder.position": "sinusoidal"},
    sides=RIGHT,
    translates=True,
    padding_idx=True,
)
PEGASUS = Family(
    "pegasus",
    "Pegasus",
    HEADS,
    {**BART_SIZES, "decoder_start_token_id": PAD, "scale_embedding": True, "activation_function": "relu"},
    {"decoder.position": "sinusoidal"},
    sides=RIGHT,
    translates=True,
    padding_idx=True,
)
# Its positions are counted over what is not padding, on either side.
M2M100 = Family(
    "m2m_100",
    "M2M100",
    {**HEADS, "ForConditionalGeneration": masked_translation_labels},
    {**BART_SIZES, "decoder_start_token_id": END},
    {"decoder.position_offset": 1},
    translates=True,
    padding_idx=True,
)

FAMILIES = [T5, MT5, BART, MBART, MARIAN, PEGASUS, M2M100]
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCABULARY + 4}
VARIANTS = [
    T5.variant("ForConditionalGeneration", "v1.1", **GATED),
    T5.variant("Model", "v1.1", **GATED),
    T5.variant("ForConditionalGeneration", "silu", feed_forward_proj="gated-silu"),
    T5.variant("EncoderModel", "v1.1", **GATED),
    MT5.variant("ForConditionalGeneration", "plain", feed_forward_proj="relu"),
    MT5.variant("ForTokenClassification", "plain", feed_forward_proj="relu"),
    BART.variant("ForConditionalGeneration", "scaled", scale_embedding=True, encoder_layerdrop=0.1),
    MBART.variant(
        "ForConditionalGeneration",
        "told how to start",
        {"start_with_last_token": False},
        scale_embedding=False,
        decoder_start_token_id=5,
    ),
    MARIAN.variant("MTModel", "scaled", scale_embedding=True, activation_function="swish"),
    MARIAN.variant("MTModel", "two vocabularies", **TWO_VOCABULARIES),
]
