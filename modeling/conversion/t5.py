"""Conversion of encoder-decoders with relative positions, and of their encoders: T5, mT5 and LongT5, as tables."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...configuration.configuration_encoder import QkvEncoderConfig
from ...configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from ..modeling_encoder import QkvEncoderForTokenClassification, QkvEncoderModel
from .config import BASE, SYNONYMS, Architecture, Codec, Fields, Head, Values, both, same
from .encoder_decoder import heads, text_heads
from .weights import Row

T5_STACK: Fields = {
    **same("vocab_size relative_attention_num_buckets relative_attention_max_distance"),
    **{"hidden_size": "d_model", "num_attention_heads": "num_heads", "head_dim": "d_kv", "intermediate_size": "d_ff"},
    "norm_eps": "layer_norm_epsilon",
    # Both are saved, and theirs computes with the second.
    "hidden_act": Codec(
        "feed_forward_proj", lambda name, theirs: SYNONYMS.get(theirs["dense_act_fn"], theirs["dense_act_fn"])
    ),
    **{f"{place}_dropout": "dropout_rate" for place in ("embedding", "attention", "residual", "activation", "final")},
}
T5_TOKENS = same("pad_token_id bos_token_id eos_token_id classifier_dropout")
T5_FIELDS: Fields = {
    **T5_TOKENS,
    **both(T5_STACK),
    "use_cache": "use_cache",
    "encoder.num_hidden_layers": "num_layers",
    "decoder.num_hidden_layers": "num_decoder_layers",
    "decoder_start_token_id": Codec(
        "decoder_start_token_id", lambda start, theirs: theirs["pad_token_id"] if start is None else start
    ),
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
    block = f"{theirs}.block.*.layer"
    return (
        (f"{ours}embed_tokens", f"{{{theirs}.embed_tokens,shared}}", "tie"),
        (f"{ours}position.table", f"{theirs}.block.0.layer.0.{attention}.relative_attention_bias"),
        (f"{ours}layers.*.self_attn_residual.norm", f"{block}.0.layer_norm"),
        (f"{ours}layers.*.self_attn.{{q,k,v,o}}_proj", f"{block}.0.{attention}.{{q,k,v,o}}"),
        (f"{ours}layers.*.mlp_residual.norm", f"{block}.{feed_forward}.layer_norm"),
        # A gate takes its up_proj along; without one the row after it finds up_proj.
        (f"{ours}layers.*.mlp.{{gate,up}}_proj", f"{block}.{feed_forward}.DenseReluDense.{{wi_0,wi_1}}"),
        (f"{ours}layers.*.mlp.up_proj", f"{block}.{feed_forward}.DenseReluDense.wi"),
        (f"{ours}layers.*.mlp.down_proj", f"{block}.{feed_forward}.DenseReluDense.wo"),
        (f"{ours}norm", f"{theirs}.final_layer_norm"),
    )


def t5_heads(name: str) -> tuple[Head, ...]:
    """Return the classes of T5 and mT5 with both stacks."""
    return (*heads(name, "ForConditionalGeneration"), *text_heads(name, "transformer."))


def t5_encoder_heads(name: str) -> tuple[Head, ...]:
    """Return the classes of T5 and mT5 with the encoder alone."""
    return (
        Head(QkvEncoderModel, f"{name}EncoderModel", prefixes=BASE),
        Head(QkvEncoderForTokenClassification, f"{name}ForTokenClassification", (("classifier", "classifier"),)),
    )


def gated(plain: Architecture, spread: Callable[[Values], Values]) -> Architecture:
    """Add a gate to each feed-forward (T5 v1.1, FLAN-T5, mT5)."""
    return replace(
        plain,
        fields={**plain.fields, **spread({"hidden_act": GATED_ACTIVATION})},
        words={**plain.words, **spread({"feed_forward": "glu"})},
    )


T5_DECODER: tuple[Row, ...] = (
    *t5_stack("decoder.", "decoder", 2),
    ("decoder.layers.*.cross_attn_residual.norm", "decoder.block.*.layer.1.layer_norm"),
    ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.block.*.layer.1.EncDecAttention.{q,k,v,o}"),
)
T5 = Architecture(
    "t5",
    QkvEncoderDecoderConfig,
    {**T5_FIELDS, "decoder.scale_logits": "scale_decoder_outputs"},
    both(PLAIN),
    (*t5_stack("encoder.", "encoder", 1), *T5_DECODER),
    t5_heads("T5"),
    prefixes=("model.", ""),
    # Theirs says it is tied always; whether the table is shared, the weights show. Its buckets know no longest text.
    free=frozenset({"tie_word_embeddings", "initializer_range", *both({"max_position_embeddings": ""})}),
    inert=frozenset({"initializer_factor", "n_positions", "dense_act_fn"}),
)
MT5 = replace(
    T5, model_type="mt5", fields=T5_FIELDS, words={**T5.words, "decoder.scale_logits": False}, heads=t5_heads("MT5")
)
T5_ENCODER = Architecture(
    "t5",
    QkvEncoderConfig,
    {**T5_TOKENS, **T5_STACK, "num_hidden_layers": "num_layers"},
    PLAIN,
    t5_stack("", "encoder", 1),
    t5_encoder_heads("T5"),
    prefixes=("model.", "transformer."),
    free=frozenset({"tie_word_embeddings", "initializer_range", "max_position_embeddings"}),
    # Most of these describe the decoder that is left out.
    inert=T5.inert
    | set("num_decoder_layers decoder_start_token_id use_cache scale_decoder_outputs is_encoder_decoder".split()),
)
MT5_ENCODER = replace(T5_ENCODER, model_type="mt5", heads=t5_encoder_heads("MT5"))

LOCAL = Codec("local_radius", lambda radius, theirs: radius + 1, lambda window, ours: (window or 1) - 1)


def local(plain: Architecture, part: str, classes: tuple[Head, ...], *decoder: Row) -> dict[str, Any]:
    """Return what local attention changes (LongT5); transient global tokens, sums of blocks, have no counterpart."""
    fields = {name: theirs for name, theirs in plain.fields.items() if name != "classifier_dropout"}
    return {
        "fields": {**fields, f"{part}sliding_window": LOCAL},
        "words": {**plain.words, f"{part}pattern": "sliding"},
        "rows": (*t5_stack(part, "encoder", 1, "LocalSelfAttention"), *decoder),
        "heads": classes,
        "inert": plain.inert | {"global_block_size"},
    }


LOCAL_T5_HEADS = heads("LongT5", "ForConditionalGeneration")
LOCAL_T5 = replace(T5, model_type="longt5", **local(T5, "encoder.", LOCAL_T5_HEADS, *T5_DECODER))
LOCAL_T5_ENCODER = replace(T5_ENCODER, model_type="longt5", **local(T5_ENCODER, "", t5_encoder_heads("LongT5")[:1]))

# mT5 without a scale before its head is T5 v1.1, and what is both is stored as T5.
T5_KIN = tuple(
    variant
    for spread, kin in ((both, (T5, MT5, LOCAL_T5)), (dict, (T5_ENCODER, MT5_ENCODER, LOCAL_T5_ENCODER)))
    for plain in kin
    for variant in (gated(plain, spread), plain)
)
