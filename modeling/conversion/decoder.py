"""Conversion of decoders: GPT-2, OPT, BLOOM, GPT-NeoX, Llama, Mistral and Qwen, as tables."""

from dataclasses import replace

from ...configuration.configuration_decoder import QkvDecoderConfig
from ...configuration.configuration_pattern import CACHE_LAYER_TYPES
from .config import Architecture, Codec, Fields, Head, Values, default, renames, translated
from .weights import ROWS

LANGUAGE_MODEL = (("lm_head.weight", "lm_head.weight"),)
QA_OUTPUTS = (("qa_outputs", "qa_outputs"),)
MODEL = Head("Model")
SCORED = Head("ForSequenceClassification", (("score", "score"),))
ANSWERS = Head("ForQuestionAnswering", QA_OUTPUTS)
COMMON = (MODEL, Head("ForCausalLM", LANGUAGE_MODEL), SCORED)
TOKENS = Head("ForTokenClassification", (("score", "classifier"),))
SCORED_TOKENS = replace(TOKENS, rows=(("score", "score"),))

# Theirs is read by one head alone, and is 0.1 unless set.
DROPOUT: Fields = {
    "classifier_dropout": Codec("classifier_dropout", read=lambda rate, theirs: 0.1 if rate is None else rate)
}
GPT2 = Architecture(
    "gpt2",
    QkvDecoderConfig,
    {
        **DROPOUT,
        **renames(
            "intermediate_size=n_inner hidden_act=activation_function norm_eps=layer_norm_epsilon "
            "embedding_dropout=embd_pdrop attention_dropout=attn_pdrop residual_dropout=resid_pdrop"
        ),
        "attention_multiplier": translated("scale_attn_weights", {True: None, False: 1.0}),
    },
    {},
    ROWS["gpt2"],
    (MODEL, Head("ForCausalLM", LANGUAGE_MODEL, theirs="LMHeadModel"), SCORED, TOKENS, ANSWERS),
    prefix="transformer.",
    # A summary is taken by GPT2DoubleHeadsModel only, which has no counterpart; n_ctx repeats n_positions.
    inert="n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout",
)

OPT = Architecture(
    "opt",
    QkvDecoderConfig,
    {
        **DROPOUT,
        **renames(
            "intermediate_size=ffn_dim embedding_size=word_embed_proj_dim hidden_act=activation_function "
            "residual_dropout=dropout attention_bias=enable_bias mlp_bias=enable_bias norm_first=do_layer_norm_before "
            "initializer_range=init_std"
        ),
        "final_norm": Codec(
            "_remove_final_layer_norm",
            read=lambda removed, theirs: theirs["do_layer_norm_before"] and not removed,
            write=lambda normed, ours: ours["norm_first"] and not normed,
        ),
    },
    {"position": "learned", "position_offset": 2, "norm_eps": 1e-5, "layerdrop": 0.0},
    (*ROWS["opt"], *ROWS["fairseq_layers"]),
    (replace(MODEL, prefix="decoder."), *COMMON[1:], ANSWERS),
    prefix="model.decoder.",
    inert="activation_dropout",  # written by the first version, read by none
)
BLOOM = Architecture(
    "bloom",
    QkvDecoderConfig,
    {
        **renames("residual_dropout=hidden_dropout norm_eps=layer_norm_epsilon"),
        "classifier_dropout": default("classifier_dropout", "hidden_dropout"),
        # No number depends on it, for distances have no end; the first version of theirs wrote it down.
        "max_position_embeddings": Codec("seq_length", read=lambda length, theirs: length or 2048),
    },
    {"position": "alibi", "embedding_norm": True, "hidden_act": "gelu_bloom"},
    ROWS["bloom"],
    (*COMMON, TOKENS, ANSWERS),
    prefix="transformer.",
    # The ranks it was trained on, which matter to slow_but_exact alone; the rest was for Megatron.
    inert="pretraining_tp attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi "
    "skip_bias_add skip_bias_add_qkv unk_token_id",
)

# Some of theirs turn a quarter or a half of each head unless told.
PARTIAL_ROPE: Fields = {
    "rope_parameters": Codec("rope_parameters", write=lambda rope, ours: {"partial_rotary_factor": 1.0, **(rope or {})})
}
GPT_NEOX = Architecture(
    "gpt_neox",
    QkvDecoderConfig,
    {
        **DROPOUT,
        **renames(
            "parallel_residual=use_parallel_residual embedding_dropout=hidden_dropout residual_dropout=hidden_dropout "
            "norm_eps=layer_norm_eps"
        ),
        **PARTIAL_ROPE,
    },
    {"position": "rope"},
    ROWS["gpt_neox"],
    (*COMMON, TOKENS, ANSWERS),
    prefix="gpt_neox.",
    # It is causal whatever is_decoder says; the file of the 20B model has the others under a second name.
    inert="is_decoder attention_probs_dropout_prob hidden_dropout_prob",
)


def full_rotation(rope: Values | None, fields: Values) -> Values:
    """Drop the factor of a partial rotation, which Llama would ignore or fail on."""
    return {name: value for name, value in (rope or {}).items() if name != "partial_rotary_factor"}


WHOLE_ROPE: Fields = {"rope_parameters": Codec("rope_parameters", full_rotation, full_rotation)}
# Their names for layers of the patterns they have.
LAYER_TYPES = {word: CACHE_LAYER_TYPES[word] for word in ("full", "sliding")}
PATTERNS = {layer_type: word for word, layer_type in LAYER_TYPES.items()}


def our_pattern(types: list[str], theirs: Values) -> str | list[str]:
    """Name their layer types in our words, one where all are alike; an unknown one stays, for the config to check."""
    words = [PATTERNS.get(name, name) for name in types]
    return words[0] if len(set(words)) == 1 else words


def their_layers(pattern: str | list[str], ours: Values) -> list[str]:
    """Name the type of each layer; a pattern they have not becomes another, and is refused for it."""
    patterns = [pattern] * ours["num_hidden_layers"] if isinstance(pattern, str) else pattern
    return [CACHE_LAYER_TYPES[word] for word in patterns]


LAYER_PATTERN = Codec("layer_types", our_pattern, their_layers)
LLAMA_WORDS = {"norm": "rms", "feed_forward": "glu", "position": "rope"}
LLAMA = Architecture(
    "llama",
    QkvDecoderConfig,
    {
        **DROPOUT,
        **renames("norm_eps=rms_norm_eps head_dim"),
        **WHOLE_ROPE,
    },
    LLAMA_WORDS,
    ROWS["llama"],
    (*COMMON, SCORED_TOKENS, replace(ANSWERS, prefix="transformer.")),
    prefix="model.",
    inert="max_sequence_length",  # repeats max_position_embeddings
    assumed={"is_llama_config": True, "rope_interleaved": False},  # SmolLM2
)
UNBIASED = {"attention_bias": False, "mlp_bias": False}
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    words={**LLAMA_WORDS, **UNBIASED, "pattern": "sliding"},
    heads=(*COMMON, SCORED_TOKENS, ANSWERS),
)
# Later Mistrals have full attention.
MISTRAL_FULL = replace(
    MISTRAL,
    fields={**LLAMA.fields, "sliding_window": Codec("sliding_window", lambda *_: None, lambda *_: None)},
    words={**LLAMA_WORDS, **UNBIASED},
)

QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    fields={
        **LLAMA.fields,
        "pattern": LAYER_PATTERN,
        # Their switch has no field of ours; it stands beside one that never changes.
        "position": Codec(
            "use_sliding_window", lambda used, theirs: "rope", lambda word, ours: ours["sliding_window"] is not None
        ),
    },
    words={**LLAMA_WORDS, "attention_bias": ["q_proj", "k_proj", "v_proj"], "mlp_bias": False},
    # `layer_types` and `sliding_window` say the same.
    inert="max_window_layers use_sliding_window",
    assumed={"use_mrope": False},
)
QWEN3 = replace(
    QWEN2,
    model_type="qwen3",
    words={**LLAMA_WORDS, "mlp_bias": False, "query_key_norm": True},
    rows=(*LLAMA.rows, ("layers.*.self_attn.{q,k}_norm", "layers.*.self_attn.{q,k}_norm")),
)

DECODERS = (GPT2, OPT, BLOOM, GPT_NEOX, LLAMA, MISTRAL, MISTRAL_FULL, QWEN2, QWEN3)
