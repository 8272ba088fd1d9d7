"""Official encoder-decoders, every class of each at a tiny size."""

from families_base import END, PAD, VOCABULARY, Family, Inputs, translation, translation_labels

HEADS: dict[str, Inputs] = {"Model": translation, "ForConditionalGeneration": translation_labels}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.2}
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
    HEADS,
    {**T5_SIZES, **BUCKETS, "decoder_start_token_id": PAD, "initializer_factor": 0.5},
    {"encoder.attention_multiplier": None},
    translates=True,
)
BART = Family(
    "bart",
    "Bart",
    HEADS,
    {**BART_SIZES, "decoder_start_token_id": END},
    {"decoder.position_offset": 1, "decoder.max_position_embeddings": 25},
    sides=RIGHT,
    translates=True,
)
MARIAN = Family(
    "marian",
    "Marian",
    {"Model": translation, "MTModel": translation_labels},
    {**BART_SIZES, "decoder_start_token_id": PAD},
    {"encoder.position": "sinusoidal"},
    sides=RIGHT,
    translates=True,
)

FAMILIES = [T5, BART, MARIAN]
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCABULARY + 4}
VARIANTS = [
    T5.variant("ForConditionalGeneration", "v1.1", **GATED),
    T5.variant("Model", "v1.1", **GATED),
    T5.variant("ForConditionalGeneration", "silu", feed_forward_proj="gated-silu"),
    BART.variant("ForConditionalGeneration", "scaled", scale_embedding=True),
    MARIAN.variant("MTModel", "scaled", scale_embedding=True, activation_function="swish"),
    MARIAN.variant("MTModel", "two vocabularies", **TWO_VOCABULARIES),
]
