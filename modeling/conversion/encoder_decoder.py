"""Conversion of encoder-decoders, as tables: BART and its kin, Marian, Pegasus, M2M100 and LED; T5, mT5 and LongT5."""

from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from ...configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .config import AFTER_PADDING, Architecture, Codec, Fields, Head, Values, both, default, one_spelling, renames
from .decoder import ANSWERS, LANGUAGE_MODEL, MODEL
from .encoder import LOCAL_AND_GLOBAL, TOKENS, WINDOW
from .weights import ROWS, placed

# A buffer of theirs, and zero in most checkpoints; only where it is not, our head has a bias.
LOGITS_BIAS = ("lm_head.bias", "final_logits_bias", "lead", "optional")
SCORED = Head("ForConditionalGeneration", LANGUAGE_MODEL)
BIASED = Head("ForConditionalGeneration", (*LANGUAGE_MODEL, LOGITS_BIAS))
TEXTS = Head("ForSequenceClassification", (("{dense,classifier}", "classification_head.{dense,out_proj}"),))

# Fields of which encoder and decoder have one each, and those of other names.
SIDES = {
    **both(
        renames(
            "num_hidden_layers=*_layers num_attention_heads=*_attention_heads intermediate_size=*_ffn_dim "
            "layerdrop=*_layerdrop hidden_size=d_model hidden_act=activation_function residual_dropout=dropout"
        )
    ),
    "initializer_range": "init_std",
}
# Their encoders alone keep half precision finite.
CLAMPED = {"encoder.float16_clamp": "layer"}
BART_FIELDS = {**SIDES, **both({"embedding_dropout": "dropout"})}
SHARED_FIELDS = {**BART_FIELDS, "share_embeddings": "tie_word_embeddings"}

BART = Architecture(
    "bart",
    QkvEncoderDecoderConfig,
    SHARED_FIELDS,
    {**both({"norm_first": False, "embedding_norm": True, "position_offset": 2}), **CLAMPED},
    (*ROWS["bart_layers"], *ROWS["one_table"], *ROWS["bart_embeddings"]),
    (MODEL, BIASED, replace(TEXTS, prefix="model."), ANSWERS),
    prefix="model.",
    free="decoder.lm_head_bias",
    # The first lives in the generation config, the rest is history.
    inert="forced_eos_token_id classif_dropout extra_pos_embeddings force_bos_token_to_be_generated replacing_rate",
    assumed={
        **dict.fromkeys(("add_bias_logits", "add_final_layer_norm", "do_blenderbot_90_layernorm"), False),
        **{"normalize_before": False, "normalize_embedding": True, "static_position_embeddings": False},
    },
)
PRE_NORM = {"normalize_before": True, "add_final_layer_norm": True}
# Unless told, generation starts as a text does.
MBART = replace(
    BART,
    model_type="mbart",
    fields={**SHARED_FIELDS, "decoder_start_token_id": default("decoder_start_token_id", "bos_token_id")},
    words={**both({"embedding_norm": True, "position_offset": 2}), **CLAMPED, "start_with_last_token": True},
    rows=(*BART.rows, *ROWS["final_norms"]),
    assumed={**BART.assumed, **PRE_NORM},
)
# From here on no class has the head in which this dropout would act.
HEADLESS = f"{BART.inert} classifier_dropout"
MARIAN = replace(
    BART,
    model_type="marian",
    fields={
        **BART_FIELDS,
        "decoder.vocab_size": "decoder_vocab_size",
        "share_embeddings": "share_encoder_decoder_embeddings",
    },
    words={**both({"norm_first": False, "position": "sinusoidal_concat"}), **CLAMPED, "share_embeddings": True},
    rows=(*ROWS["bart_layers"], *ROWS["one_table"], *ROWS["sinusoids"]),
    heads=(MODEL, replace(BIASED, theirs="MTModel")),
    inert=HEADLESS,
    assumed={**BART.assumed, "normalize_embedding": False, "static_position_embeddings": True},
)
MARIAN_TWO_VOCABULARIES = replace(
    MARIAN,
    words={**MARIAN.words, "share_embeddings": False},
    rows=(*ROWS["bart_layers"], *ROWS["two_tables"], *ROWS["sinusoids"]),
)
PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    fields={**SHARED_FIELDS, "bos_token_id": "bos_token_id"},
    words={**both({"position": "sinusoidal_concat"}), **CLAMPED},
    rows=(*MARIAN.rows, *ROWS["final_norms"]),
    heads=(MODEL, BIASED),
    assumed={**MARIAN.assumed, **PRE_NORM},
)
# Its table of positions is no part of a checkpoint. NLLB is another vocabulary.
M2M100 = replace(
    BART,
    model_type="m2m_100",
    fields={**SHARED_FIELDS, **both({"position_offset": AFTER_PADDING})},
    words={**both({"position": "sinusoidal_t2t"}), **CLAMPED},
    rows=(*ROWS["bart_layers"], *ROWS["one_table"], *ROWS["final_norms"]),
    heads=(MODEL, SCORED),
    free="",
    inert="",
    assumed={},
)

PLBART = replace(
    BART,
    model_type="plbart",
    words={**BART.words, "start_with_last_token": True},
    heads=(MODEL, BIASED, replace(TEXTS, prefix="model.")),
)
BLENDERBOT = replace(
    BART,
    model_type="blenderbot",
    words=CLAMPED,
    rows=(*M2M100.rows, ("{encoder,decoder}.position.table", "{encoder,decoder}.embed_positions")),
    heads=(MODEL, BIASED),
    # Generation alone reads the first of them.
    inert=f"encoder_no_repeat_ngram_size unk_token_id {HEADLESS}",
    assumed={
        **{**BART.assumed, **PRE_NORM, "normalize_embedding": False},
        **{"do_blenderbot_90_layernorm": True, "layernorm_variant": "prelayernorm"},
    },
)

LED_ATTENTION = "encoder.layers.*.self_attn."
LED = replace(
    BART,
    model_type="led",
    fields={
        **SHARED_FIELDS,
        **both({"max_position_embeddings": "max_*_position_embeddings"}),
        "encoder.sliding_window": WINDOW,
    },
    words={
        **both({"norm_first": False, "embedding_norm": True}),
        **CLAMPED,
        **{f"encoder.{name}": word for name, word in LOCAL_AND_GLOBAL.items()},
    },
    rows=(*placed(ROWS["led_attention"], LED_ATTENTION, LED_ATTENTION), *BART.rows),
    heads=(MODEL, BIASED, ANSWERS),
    prefix="led.",
    inert=HEADLESS,
)


def feed_forward_proj(value: object, ours: Values) -> str:
    """Name the activation and the gate; "gated-gelu" has always meant the approximation."""
    act = ours["hidden_act"]
    return f"gated-{'gelu' if act == 'gelu_new' else act}" if ours["feed_forward"] == "glu" else act


T5_STACK: Fields = {
    **renames("hidden_size=d_model num_attention_heads=num_heads head_dim=d_kv intermediate_size=d_ff"),
    **renames("num_hidden_layers=num_layers norm_eps=layer_norm_epsilon"),
    **{f"{place}_dropout": "dropout_rate" for place in ("embedding", "attention", "residual", "activation", "final")},
    # Both are saved, and theirs computes with the second.
    "hidden_act": Codec("feed_forward_proj", lambda _, theirs: one_spelling(theirs["dense_act_fn"]), feed_forward_proj),
    "feed_forward": Codec(
        "feed_forward_proj", lambda name, theirs: "glu" if name.startswith("gated-") else "mlp", feed_forward_proj
    ),
}
T5_WORDS = {"norm": "rms", "attention_bias": False, "mlp_bias": False, "position": "t5", "attention_multiplier": 1.0}
T5_WORDS |= {"float16_clamp": "branch"}
T5 = Architecture(
    "t5",
    QkvEncoderDecoderConfig,
    {
        **both(T5_STACK),
        **renames("decoder.num_hidden_layers=num_decoder_layers decoder.scale_logits=scale_decoder_outputs"),
        "bos_token_id": "bos_token_id",
        "decoder_start_token_id": default("decoder_start_token_id", "pad_token_id"),
    },
    both(T5_WORDS),
    (*placed(ROWS["t5_encoder"], "encoder.", ""), *ROWS["t5_decoder"]),
    # The classifier's base has another name.
    (MODEL, SCORED, replace(TEXTS, prefix="transformer."), ANSWERS),
    # Theirs says it is tied always; whether the table is shared, the weights show. Its buckets know no longest text.
    free="tie_word_embeddings initializer_range encoder.max_position_embeddings decoder.max_position_embeddings",
    inert="initializer_factor n_positions dense_act_fn",
)
MT5 = replace(
    T5,
    model_type="mt5",
    fields={ours: theirs for ours, theirs in T5.fields.items() if ours != "decoder.scale_logits"},
    words={**T5.words, "decoder.scale_logits": False},
)
T5_ENCODER = Architecture(
    "t5",
    QkvEncoderConfig,
    {**T5_STACK, "bos_token_id": "bos_token_id"},
    T5_WORDS,
    ROWS["t5_encoder"],
    (replace(MODEL, theirs="EncoderModel"), TOKENS),
    prefix="transformer.",
    free="tie_word_embeddings initializer_range max_position_embeddings",
    # Most of these describe the decoder that is left out.
    inert=f"{T5.inert} num_decoder_layers decoder_start_token_id use_cache scale_decoder_outputs is_encoder_decoder",
)


def local(plain: Architecture, part: str, heads: int, *decoder: tuple[str, ...]) -> Architecture:
    """Give an encoder local attention (LongT5); transient global tokens, sums of blocks, have no counterpart."""
    window = Codec("local_radius", lambda radius, theirs: radius + 1, lambda window, ours: (window or 1) - 1)
    return replace(
        plain,
        model_type="longt5",
        fields={**plain.fields, f"{part}sliding_window": window},
        words={**plain.words, f"{part}pattern": "sliding"},
        rows=(*placed(ROWS["longt5_encoder"], part, ""), *decoder),
        heads=plain.heads[:heads],
        inert=f"{plain.inert} global_block_size",
    )


# mT5 without a scale before its head is T5 v1.1, and a model that is both is stored as T5.
WHOLE = (T5, MT5, local(T5, "encoder.", 2, *ROWS["t5_decoder"]))
HALVES = (T5_ENCODER, replace(T5_ENCODER, model_type="mt5"), local(T5_ENCODER, "", 1))
BARTS = (BART, MBART, PLBART, BLENDERBOT, MARIAN, MARIAN_TWO_VOCABULARIES, PEGASUS, M2M100, LED)
ENCODER_DECODERS = (*WHOLE, *HALVES, *BARTS)
