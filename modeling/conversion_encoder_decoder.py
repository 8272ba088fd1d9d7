"""Which published encoder-decoders are ours? T5 in both versions, BART and Marian, as tables."""

from dataclasses import replace

from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .conversion_config import BASE, Architecture, Codec, Fields, Head, activation, both, same
from .modeling_encoder_decoder import QkvEncoderDecoderForConditionalGeneration, QkvEncoderDecoderModel

TOKENS: Fields = same("use_cache pad_token_id bos_token_id eos_token_id")


def heads(name: str, language_model: str, *rows: tuple[str, ...]) -> tuple[Head, ...]:
    """The model without and with the scores of words."""
    return (
        Head(QkvEncoderDecoderModel, f"{name}Model", prefixes=BASE),
        Head(
            QkvEncoderDecoderForConditionalGeneration,
            f"{name}{language_model}",
            (("lm_head.weight", "lm_head.weight"), *rows),
        ),
    )


T5_FIELDS: Fields = (
    *TOKENS,
    *both(same("vocab_size relative_attention_num_buckets relative_attention_max_distance")),
    *both((("hidden_size", "d_model"), ("head_dim", "d_kv"), ("intermediate_size", "d_ff"))),
    *both((("num_attention_heads", "num_heads"), ("norm_eps", "layer_norm_epsilon"))),
    *both(
        tuple((f"{place}_dropout", "dropout_rate") for place in ("embedding", "attention", "residual", "activation"))
    ),
    ("encoder.num_hidden_layers", "num_layers"),
    ("decoder.num_hidden_layers", "num_decoder_layers"),
    ("decoder.scale_logits", "scale_decoder_outputs"),
    (
        "decoder_start_token_id",
        Codec("decoder_start_token_id", lambda start, theirs: theirs["pad_token_id"] if start is None else start),
    ),
)
T5_WORDS = dict(
    both(
        (
            ("position", "t5"),
            ("norm", "rms"),
            ("attention_bias", False),
            ("mlp_bias", False),
            ("attention_multiplier", 1.0),
        )
    )
)


def t5_stack(side: str, feed_forward: int) -> tuple[tuple[str, ...], ...]:
    """One stack; the feed-forward comes after one attention in the encoder, two in the decoder."""
    block = f"{side}.block.*.layer"
    return (
        (f"{side}.embed_tokens", f"{{{side}.embed_tokens,shared}}", "tie"),
        (f"{side}.position.table", f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"),
        (f"{side}.layers.*.self_attn_residual.norm", f"{block}.0.layer_norm"),
        (f"{side}.layers.*.self_attn.{{q,k,v,o}}_proj", f"{block}.0.SelfAttention.{{q,k,v,o}}"),
        (f"{side}.layers.*.mlp_residual.norm", f"{block}.{feed_forward}.layer_norm"),
        (f"{side}.norm", f"{side}.final_layer_norm"),
        (f"{side}.layers.*.mlp.down_proj", f"{block}.{feed_forward}.DenseReluDense.wo"),
    )


T5_ROWS = (
    *t5_stack("encoder", 1),
    *t5_stack("decoder", 2),
    ("decoder.layers.*.cross_attn_residual.norm", "decoder.block.*.layer.1.layer_norm"),
    ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.block.*.layer.1.EncDecAttention.{q,k,v,o}"),
)

T5 = Architecture(
    "t5",
    QkvEncoderDecoderConfig,
    (*T5_FIELDS, *both((("hidden_act", activation("feed_forward_proj")),))),
    T5_WORDS,
    (
        *T5_ROWS,
        ("encoder.layers.*.mlp.up_proj", "encoder.block.*.layer.1.DenseReluDense.wi"),
        ("decoder.layers.*.mlp.up_proj", "decoder.block.*.layer.2.DenseReluDense.wi"),
    ),
    heads("T5", "ForConditionalGeneration"),
    prefixes=("model.", ""),
    # Theirs says it is tied always; whether the table is shared, the weights show.
    free=frozenset({"tie_word_embeddings", "initializer_range"}),
    inert=frozenset({"initializer_factor", "n_positions", "dense_act_fn", "classifier_dropout"}),
)
T5_GATED = replace(
    T5,
    fields=(
        *T5_FIELDS,
        *both(
            (
                (
                    "hidden_act",
                    Codec(
                        "feed_forward_proj",
                        read=lambda name, theirs: theirs["dense_act_fn"],
                        # "gated-gelu" has always meant the approximation.
                        write=lambda act, ours: f"gated-{'gelu' if act == 'gelu_new' else act}",
                    ),
                ),
            )
        ),
    ),
    words={**T5_WORDS, **dict(both((("feed_forward", "glu"),)))},
    rows=(
        *T5_ROWS,
        ("encoder.layers.*.mlp.{gate,up}_proj", "encoder.block.*.layer.1.DenseReluDense.{wi_0,wi_1}"),
        ("decoder.layers.*.mlp.{gate,up}_proj", "decoder.block.*.layer.2.DenseReluDense.{wi_0,wi_1}"),
    ),
)

BART_FIELDS: Fields = (
    *TOKENS,
    *same("decoder_start_token_id tie_word_embeddings"),
    ("initializer_range", "init_std"),
    *both((("hidden_size", "d_model"), ("hidden_act", activation("activation_function")))),
    *both((("embedding_dropout", "dropout"), ("residual_dropout", "dropout"))),
    *both(same("max_position_embeddings attention_dropout activation_dropout scale_embedding")),
    *(
        (f"{side}.{ours}", f"{side}_{theirs}")
        for side in ("encoder", "decoder")
        for ours, theirs in (
            ("num_hidden_layers", "layers"),
            ("num_attention_heads", "attention_heads"),
            ("intermediate_size", "ffn_dim"),
        )
    ),
)
POST_NORM = (("norm_first", False),)


def bart_stack(side: str) -> tuple[tuple[str, ...], ...]:
    """What encoder and decoder have alike."""
    layer = f"{side}.layers.*"
    return (
        (f"{layer}.self_attn.{{q,k,v,o}}_proj", f"{layer}.self_attn.{{q_proj,k_proj,v_proj,out_proj}}"),
        (f"{layer}.self_attn_residual.norm", f"{layer}.self_attn_layer_norm"),
        (f"{layer}.mlp.{{up,down}}_proj", f"{layer}.{{fc1,fc2}}"),
        (f"{layer}.mlp_residual.norm", f"{layer}.final_layer_norm"),
    )


STACK_ROWS = (
    *bart_stack("encoder"),
    *bart_stack("decoder"),
    ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.layers.*.encoder_attn.{q_proj,k_proj,v_proj,out_proj}"),
    ("decoder.layers.*.cross_attn_residual.norm", "decoder.layers.*.encoder_attn_layer_norm"),
)
EMBEDDING_ROWS = tuple(
    (f"{side}.embed_tokens", f"{{{side}.embed_tokens,shared}}", "tie") for side in ("encoder", "decoder")
)
# A buffer of theirs, and zero in most checkpoints; only where it is not, our head has a bias.
LOGITS_BIAS = ("lm_head.bias", "final_logits_bias", "lead", "optional")
SINUSOIDS = tuple(("", f"{side}.embed_positions.weight", "sinusoids") for side in ("encoder", "decoder"))

BART = Architecture(
    "bart",
    QkvEncoderDecoderConfig,
    (*BART_FIELDS, *both(same("vocab_size")), ("share_embeddings", "tie_word_embeddings")),
    dict(both((*POST_NORM, ("embedding_norm", True), ("position_offset", 2)))),
    (
        *STACK_ROWS,
        *EMBEDDING_ROWS,
        ("encoder.embed_norm", "encoder.layernorm_embedding"),
        ("decoder.embed_norm", "decoder.layernorm_embedding"),
        ("{encoder,decoder}.position.table", "{encoder,decoder}.embed_positions"),
    ),
    heads("Bart", "ForConditionalGeneration", LOGITS_BIAS),
    prefixes=("model.", "model."),
    free=frozenset({"decoder.lm_head_bias"}),
    # The first lives in the generation config, the dropouts act in a head that has no counterpart, the rest is history.
    inert=frozenset(
        "forced_eos_token_id classifier_dropout classif_dropout extra_pos_embeddings "
        "force_bos_token_to_be_generated".split()
    ),
    assumed={
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "do_blenderbot_90_layernorm": False,
        "normalize_before": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
)
MARIAN = replace(
    BART,
    model_type="marian",
    fields=(
        *BART_FIELDS,
        ("encoder.vocab_size", "vocab_size"),
        ("decoder.vocab_size", "decoder_vocab_size"),
        ("share_embeddings", "share_encoder_decoder_embeddings"),
    ),
    words={**dict(both((*POST_NORM, ("position", "sinusoidal_concat")))), "share_embeddings": True},
    rows=(*STACK_ROWS, *EMBEDDING_ROWS, *SINUSOIDS),
    heads=heads("Marian", "MTModel", LOGITS_BIAS),
    assumed={**BART.assumed, "normalize_embedding": False, "static_position_embeddings": True},
)
MARIAN_TWO_VOCABULARIES = replace(
    MARIAN,
    words={**MARIAN.words, "share_embeddings": False},
    rows=(*STACK_ROWS, ("{encoder,decoder}.embed_tokens", "{encoder,decoder}.embed_tokens"), *SINUSOIDS),
)

ENCODER_DECODERS = (T5_GATED, T5, BART, MARIAN, MARIAN_TWO_VOCABULARIES)
