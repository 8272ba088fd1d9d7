"""Conversion of decoders with layer norms: GPT-2, OPT, BLOOM and GPT-NeoX, as tables."""

from ...configuration.configuration_decoder import QkvDecoderConfig
from ..modeling_decoder import (
    QkvDecoderForCausalLM,
    QkvDecoderForQuestionAnswering,
    QkvDecoderForSequenceClassification,
    QkvDecoderForTokenClassification,
    QkvDecoderModel,
)
from .config import BASE, Architecture, Codec, Fields, Head, activation, same
from .weights import Row

LANGUAGE_MODEL = (("lm_head.weight", "lm_head.weight"),)
QUESTIONS = (("qa_outputs", "qa_outputs"),)
SCORE = (("score", "score"),)

TOKEN_FIELDS: Fields = {
    **same("vocab_size use_cache pad_token_id bos_token_id eos_token_id tie_word_embeddings initializer_range"),
    # Theirs is read by one head alone, and is 0.1 where nobody has set it.
    "classifier_dropout": Codec("classifier_dropout", read=lambda rate, theirs: 0.1 if rate is None else rate),
}


def heads(
    name: str,
    language_model: str = "ForCausalLM",
    token_classifier: str | None = "score",
    base: tuple[str, str] = BASE,
    questions: tuple[str, str] | None = None,
) -> tuple[Head, ...]:
    """Return the classes that every decoder has here and there; what differs is what some of theirs call things."""
    words = (("score", token_classifier),) if token_classifier else ()
    labels = Head(QkvDecoderForTokenClassification, f"{name}ForTokenClassification", words)
    return (
        Head(QkvDecoderModel, f"{name}Model", prefixes=base),
        Head(QkvDecoderForCausalLM, f"{name}{language_model}", LANGUAGE_MODEL),
        Head(QkvDecoderForSequenceClassification, f"{name}ForSequenceClassification", SCORE),
        *([labels] if token_classifier else []),
        Head(QkvDecoderForQuestionAnswering, f"{name}ForQuestionAnswering", QUESTIONS, prefixes=questions),
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
    heads("GPT2", "LMHeadModel", token_classifier="classifier"),
    prefixes=("model.", "transformer."),
    # A summary is taken by GPT2DoubleHeadsModel only, which has no counterpart; n_ctx repeats n_positions.
    inert=frozenset(
        "n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout".split()
    ),
)

OPT = Architecture(
    "opt",
    QkvDecoderConfig,
    {
        **TOKEN_FIELDS,
        **same("hidden_size num_hidden_layers num_attention_heads max_position_embeddings attention_dropout"),
        "intermediate_size": "ffn_dim",
        "embedding_size": "word_embed_proj_dim",
        "hidden_act": activation("activation_function"),
        "residual_dropout": "dropout",
        "attention_bias": "enable_bias",
        "mlp_bias": "enable_bias",
        "norm_first": "do_layer_norm_before",
        "final_norm": Codec(
            "_remove_final_layer_norm",
            read=lambda removed, theirs: theirs["do_layer_norm_before"] and not removed,
            write=lambda normed, ours: ours["norm_first"] and not normed,
        ),
        "initializer_range": "init_std",
    },
    {"position": "learned", "position_offset": 2, "norm_eps": 1e-5},
    (
        ("embed_tokens", "embed_tokens"),
        ("position.table", "embed_positions"),
        ("{project_in,project_out}", "{project_in,project_out}"),
        ("layers.*.self_attn_residual.norm", "layers.*.self_attn_layer_norm"),
        ("layers.*.self_attn.{q,k,v}_proj", "layers.*.self_attn.{q,k,v}_proj"),
        ("layers.*.self_attn.o_proj", "layers.*.self_attn.out_proj"),
        ("layers.*.mlp_residual.norm", "layers.*.final_layer_norm"),
        ("layers.*.mlp.{up,down}_proj", "layers.*.{fc1,fc2}"),
        ("norm", "final_layer_norm"),
    ),
    heads("OPT", token_classifier=None, base=("", "decoder.")),
    prefixes=("model.", "model.decoder."),
    inert=frozenset({"activation_dropout"}),  # written by the first version, read by none
)


def megatron_rows(layer: str, attention: str) -> tuple[Row, ...]:
    """Return the rows of a Megatron-LM layer: query, key and value interleave by head in one projection."""
    return (
        ("layers.*.self_attn_residual.norm", f"{layer}.input_layernorm"),
        ("layers.*.self_attn.{q,k,v}_proj", f"{layer}.{attention}.query_key_value", "split num_attention_heads"),
        ("layers.*.self_attn.o_proj", f"{layer}.{attention}.dense"),
        ("layers.*.mlp_residual.norm", f"{layer}.post_attention_layernorm"),
        ("layers.*.mlp.{up,down}_proj", f"{layer}.mlp.{{dense_h_to_4h,dense_4h_to_h}}"),
    )


BLOOM = Architecture(
    "bloom",
    QkvDecoderConfig,
    {
        **TOKEN_FIELDS,
        **same("hidden_size attention_dropout"),
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        # No number depends on it, for distances have no end; the first version of theirs wrote it down.
        "max_position_embeddings": Codec("seq_length", read=lambda length, theirs: length or 2048),
        "residual_dropout": "hidden_dropout",
        "classifier_dropout": Codec(
            "classifier_dropout", read=lambda rate, theirs: theirs["hidden_dropout"] if rate is None else rate
        ),
        "norm_eps": "layer_norm_epsilon",
    },
    {"position": "alibi", "embedding_norm": True, "hidden_act": "gelu_bloom"},
    (
        ("embed_tokens", "word_embeddings"),
        ("embed_norm", "word_embeddings_layernorm"),
        *megatron_rows("h.*", "self_attention"),
        ("norm", "ln_f"),
    ),
    heads("Bloom", token_classifier="classifier"),
    prefixes=("model.", "transformer."),
    # The ranks it was trained on, which matter to slow_but_exact alone; the rest was for Megatron.
    inert=frozenset(
        "pretraining_tp attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add "
        "skip_bias_add_qkv unk_token_id".split()
    ),
)

GPT_NEOX = Architecture(
    "gpt_neox",
    QkvDecoderConfig,
    {
        **TOKEN_FIELDS,
        **same("hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings"),
        **same("attention_dropout attention_bias"),
        "hidden_act": activation("hidden_act"),
        "parallel_residual": "use_parallel_residual",
        # Theirs turns a quarter of each head unless told.
        "rope_parameters": Codec(
            "rope_parameters", write=lambda rope, ours: {"partial_rotary_factor": 1.0, **(rope or {})}
        ),
        "embedding_dropout": "hidden_dropout",
        "residual_dropout": "hidden_dropout",
        "norm_eps": "layer_norm_eps",
    },
    {"position": "rope"},
    (
        ("embed_tokens", "embed_in"),
        *megatron_rows("layers.*", "attention"),
        ("norm", "final_layer_norm"),
    ),
    heads("GPTNeoX", token_classifier="classifier"),
    prefixes=("model.", "gpt_neox."),
    # It is causal whatever is_decoder says; the others are those of another name in the file of the 20B model.
    inert=frozenset({"is_decoder", "attention_probs_dropout_prob", "hidden_dropout_prob"}),
)

DECODERS = (GPT2, OPT, BLOOM, GPT_NEOX)
