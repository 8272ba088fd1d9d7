"""Conversion of encoder-decoders with relative positions, and of their encoders: T5, mT5 and LongT5, as tables."""

from collections.abc import Callable
from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from ...configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .config import Architecture, Codec, Fields, Values, both, default, one_spelling, renames
from .encoder import TOKENS
from .encoder_decoder import ANSWERS, MODEL, SCORED, TEXTS
from .weights import Row

T5_STACK: Fields = {
    **renames("vocab_size relative_attention_num_buckets relative_attention_max_distance hidden_size=d_model"),
    **renames("num_attention_heads=num_heads head_dim=d_kv intermediate_size=d_ff norm_eps=layer_norm_epsilon"),
    # Both are saved, and theirs computes with the second.
    "hidden_act": Codec("feed_forward_proj", lambda name, theirs: one_spelling(theirs["dense_act_fn"])),
    **{f"{place}_dropout": "dropout_rate" for place in ("embedding", "attention", "residual", "activation", "final")},
}
T5_TOKENS = renames("pad_token_id bos_token_id eos_token_id classifier_dropout")
T5_FIELDS: Fields = {
    **T5_TOKENS,
    **both(T5_STACK),
    **renames("use_cache encoder.num_hidden_layers=num_layers decoder.num_hidden_layers=num_decoder_layers"),
    "decoder_start_token_id": default("decoder_start_token_id", "pad_token_id"),
}
# "gated-gelu" has always meant the approximation.
GATED_ACTIVATION = Codec(
    "feed_forward_proj",
    read=lambda name, theirs: theirs["dense_act_fn"],
    write=lambda act, ours: f"gated-{'gelu' if act == 'gelu_new' else act}",
)
PLAIN = {"norm": "rms", "attention_bias": False, "mlp_bias": False, "position": "t5", "attention_multiplier": 1.0}


def t5_stack(ours: str, theirs: str, feed_forward: int, attention: str = "SelfAttention") -> tuple[Row, ...]:
    """Return the rows of a stack; the feed-forward follows one attention in the encoder, two in the decoder."""
    block, mlp = f"{theirs}.block.*.layer", f"{theirs}.block.*.layer.{feed_forward}"
    return (
        (f"{ours}embed_tokens", f"{{{theirs}.embed_tokens,shared}}", "tie"),
        (f"{ours}position.table", f"{theirs}.block.0.layer.0.{attention}.relative_attention_bias"),
        (f"{ours}layers.*.{{self_attn,mlp}}_residual.norm", f"{block}.{{0,{feed_forward}}}.layer_norm"),
        (f"{ours}layers.*.self_attn.{{q,k,v,o}}_proj", f"{block}.0.{attention}.{{q,k,v,o}}"),
        # Without a gate the row after it finds up_proj.
        (f"{ours}layers.*.mlp.{{gate,up}}_proj", f"{mlp}.DenseReluDense.{{wi_0,wi_1}}", "together"),
        (f"{ours}layers.*.mlp.{{up,down}}_proj", f"{mlp}.DenseReluDense.{{wi,wo}}"),
        (f"{ours}norm", f"{theirs}.final_layer_norm"),
    )


T5_DECODER: tuple[Row, ...] = (
    *t5_stack("decoder.", "decoder", 2),
    ("decoder.layers.*.cross_attn_residual.norm", "decoder.block.*.layer.1.layer_norm"),
    ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.block.*.layer.1.EncDecAttention.{q,k,v,o}"),
)
T5 = Architecture(
    "t5",
    "T5",
    QkvEncoderDecoderConfig,
    {**T5_FIELDS, "decoder.scale_logits": "scale_decoder_outputs"},
    both(PLAIN),
    (*t5_stack("encoder.", "encoder", 1), *T5_DECODER),
    # The classifier's base has another name.
    (MODEL, SCORED, replace(TEXTS, prefixes=("model.", "transformer.")), ANSWERS),
    prefixes=("model.", ""),
    # Theirs says it is tied always; whether the table is shared, the weights show. Its buckets know no longest text.
    free="tie_word_embeddings initializer_range encoder.max_position_embeddings decoder.max_position_embeddings",
    inert="initializer_factor n_positions dense_act_fn",
)
MT5 = replace(T5, model_type="mt5", name="MT5", fields=T5_FIELDS, words={**T5.words, "decoder.scale_logits": False})
T5_ENCODER = Architecture(
    "t5",
    "T5",
    QkvEncoderConfig,
    {**T5_TOKENS, **T5_STACK, "num_hidden_layers": "num_layers"},
    PLAIN,
    t5_stack("", "encoder", 1),
    (replace(MODEL, theirs="EncoderModel"), TOKENS),
    prefixes=("model.", "transformer."),
    free="tie_word_embeddings initializer_range max_position_embeddings",
    # Most of these describe the decoder that is left out.
    inert=f"{T5.inert} num_decoder_layers decoder_start_token_id use_cache scale_decoder_outputs is_encoder_decoder",
)
MT5_ENCODER = replace(T5_ENCODER, model_type="mt5", name="MT5")

LOCAL = Codec("local_radius", lambda radius, theirs: radius + 1, lambda window, ours: (window or 1) - 1)


def local(plain: Architecture, part: str, heads: int, *decoder: Row) -> Architecture:
    """Give an encoder local attention (LongT5); transient global tokens, sums of blocks, have no counterpart."""
    fields = {name: theirs for name, theirs in plain.fields.items() if name != "classifier_dropout"}
    return replace(
        plain,
        model_type="longt5",
        name="LongT5",
        fields={**fields, f"{part}sliding_window": LOCAL},
        words={**plain.words, f"{part}pattern": "sliding"},
        rows=(*t5_stack(part, "encoder", 1, "LocalSelfAttention"), *decoder),
        heads=plain.heads[:heads],
        inert=f"{plain.inert} global_block_size",
    )


def gated(plain: Architecture, spread: Callable[[Values], Values]) -> Architecture:
    """Add a gate to each feed-forward (T5 v1.1, FLAN-T5, mT5)."""
    fields = {**plain.fields, **spread({"hidden_act": GATED_ACTIVATION})}
    return replace(plain, fields=fields, words={**plain.words, **spread({"feed_forward": "glu"})})


WHOLE = (T5, MT5, local(T5, "encoder.", 2, *T5_DECODER))
HALVES = (T5_ENCODER, MT5_ENCODER, local(T5_ENCODER, "", 1))
# mT5 without a scale before its head is T5 v1.1, and a model that is both is stored as T5.
T5_KIN = (
    *(variant for plain in WHOLE for variant in (gated(plain, both), plain)),
    *(variant for plain in HALVES for variant in (gated(plain, dict), plain)),
)
