"""Which published decoders are ours? GPT-2, Llama and Mistral, as tables."""

from dataclasses import replace
from typing import Any

from ..configuration.configuration_decoder import QkvDecoderConfig
from .conversion_config import BASE, Architecture, Codec, Fields, Head, activation, same
from .modeling_decoder import (
    QkvDecoderForCausalLM,
    QkvDecoderForQuestionAnswering,
    QkvDecoderForSequenceClassification,
    QkvDecoderForTokenClassification,
    QkvDecoderModel,
)

LANGUAGE_MODEL = (("lm_head.weight", "lm_head.weight"),)
QUESTIONS = (("qa_outputs", "qa_outputs"),)
SCORE = (("score", "score"),)

TOKEN_FIELDS: Fields = {
    **same("vocab_size use_cache pad_token_id bos_token_id eos_token_id tie_word_embeddings initializer_range"),
    # Theirs is read by one head alone, and is 0.1 where nobody has set it.
    "classifier_dropout": Codec("classifier_dropout", read=lambda rate, theirs: 0.1 if rate is None else rate),
}


def heads(
    name: str, language_model: str = "ForCausalLM", token_classifier: str = "score", questions: str = "model."
) -> tuple[Head, ...]:
    """The five classes that every decoder has here and there; what differs is what some of theirs call things."""
    words = (("score", token_classifier),)
    return (
        Head(QkvDecoderModel, f"{name}Model", prefixes=BASE),
        Head(QkvDecoderForCausalLM, f"{name}{language_model}", LANGUAGE_MODEL),
        Head(QkvDecoderForSequenceClassification, f"{name}ForSequenceClassification", SCORE),
        Head(QkvDecoderForTokenClassification, f"{name}ForTokenClassification", words),
        Head(
            QkvDecoderForQuestionAnswering,
            f"{name}ForQuestionAnswering",
            QUESTIONS,
            prefixes=("model.", questions),
        ),
    )


GPT2 = Architecture(
    "gpt2",
    QkvDecoderConfig,
    {
        **TOKEN_FIELDS,
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
        "hidden_act": activation("activation_function"),
        "embedding_dropout": "embd_pdrop",
        "attention_dropout": "attn_pdrop",
        "residual_dropout": "resid_pdrop",
        "norm_eps": "layer_norm_epsilon",
        "attention_multiplier": Codec(
            "scale_attn_weights",
            read=lambda scaled, theirs: None if scaled else 1.0,
            write=lambda multiplier, ours: multiplier != 1.0,
        ),
    },
    {},
    (
        ("embed_tokens", "wte"),
        ("position.table", "wpe"),
        ("layers.*.self_attn_residual.norm", "h.*.ln_1"),
        ("layers.*.self_attn.{q,k,v}_proj", "h.*.attn.c_attn", "transpose", "split"),
        ("layers.*.self_attn.o_proj", "h.*.attn.c_proj", "transpose"),
        ("layers.*.mlp_residual.norm", "h.*.ln_2"),
        ("layers.*.mlp.up_proj", "h.*.mlp.c_fc", "transpose"),
        ("layers.*.mlp.down_proj", "h.*.mlp.c_proj", "transpose"),
        ("norm", "ln_f"),
    ),
    heads("GPT2", "LMHeadModel", token_classifier="classifier", questions="transformer."),
    prefixes=("model.", "transformer."),
    # A summary is taken by GPT2DoubleHeadsModel only, which has no counterpart; n_ctx repeats n_positions.
    inert=frozenset(
        "n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout".split()
    ),
)


def full_rotation(rope: Any, fields: Any) -> dict[str, Any]:
    """Llama has no partial rotation: it would ignore the factor, or fail on it."""
    return {name: value for name, value in (rope or {}).items() if name != "partial_rotary_factor"}


LLAMA_FIELDS: Fields = {
    **TOKEN_FIELDS,
    **same("hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"),
    **same("max_position_embeddings attention_dropout"),
    "hidden_act": activation("hidden_act"),
    "norm_eps": "rms_norm_eps",
    "rope_parameters": Codec("rope_parameters", full_rotation, full_rotation),
}
LLAMA_WORDS = {"norm": "rms", "feed_forward": "glu", "position": "rope"}

LLAMA = Architecture(
    "llama",
    QkvDecoderConfig,
    {**LLAMA_FIELDS, **same("attention_bias mlp_bias")},
    LLAMA_WORDS,
    (
        ("embed_tokens", "embed_tokens"),
        ("layers.*.self_attn_residual.norm", "layers.*.input_layernorm"),
        ("layers.*.self_attn.{q,k,v,o}_proj", "layers.*.self_attn.{q,k,v,o}_proj"),
        ("layers.*.mlp_residual.norm", "layers.*.post_attention_layernorm"),
        ("layers.*.mlp.{gate,up,down}_proj", "layers.*.mlp.{gate,up,down}_proj"),
        ("norm", "norm"),
    ),
    heads("Llama", questions="transformer."),
    prefixes=("model.", "model."),
    inert=frozenset({"max_sequence_length"}),  # repeats max_position_embeddings
)
# Later Mistrals see everything.
MISTRAL_FULL = replace(
    LLAMA,
    model_type="mistral",
    fields={**LLAMA_FIELDS, "sliding_window": Codec("sliding_window", lambda *_: None, lambda *_: None)},
    words={**LLAMA_WORDS, "attention_bias": False, "mlp_bias": False},
    heads=heads("Mistral"),
)
MISTRAL = replace(
    MISTRAL_FULL,
    fields={**LLAMA_FIELDS, **same("sliding_window")},
    words={**MISTRAL_FULL.words, "pattern": "sliding"},
)

DECODERS = (GPT2, LLAMA, MISTRAL, MISTRAL_FULL)
