"""Which published encoder-decoders are ours? T5 in both versions, BART and Marian, as tables."""

from dataclasses import replace

from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .conversion_config import BASE, Architecture, Codec, Fields, Head, activation, both, same
from .conversion_weights import Row
from .modeling_encoder_decoder import QkvEncoderDecoderForConditionalGeneration, QkvEncoderDecoderModel

LANGUAGE_MODEL = (("lm_head.weight", "lm_head.weight"),)
# A buffer of theirs, and zero in most checkpoints; only where it is not, our head has a bias.
LOGITS_BIAS = ("lm_head.bias", "final_logits_bias", "lead", "optional")


def heads(name: str, language_model: str, *rows: Row) -> tuple[Head, ...]:
    """The model without and with the scores of words."""
    scores = f"{name}{language_model}"
    return (
        Head(QkvEncoderDecoderModel, f"{name}Model", prefixes=BASE),
        Head(QkvEncoderDecoderForConditionalGeneration, scores, (*LANGUAGE_MODEL, *rows)),
    )


T5_FIELDS: Fields = {
    **same("use_cache pad_token_id bos_token_id eos_token_id"),
    **both(same("vocab_size relative_attention_num_buckets relative_attention_max_distance")),
    **both({"hidden_size": "d_model", "num_attention_heads": "num_heads", "head_dim": "d_kv"}),
    **both({"intermediate_size": "d_ff", "norm_eps": "layer_norm_epsilon"}),
    **both({f"{place}_dropout": "dropout_rate" for place in ("embedding", "attention", "residual", "activation")}),
    "encoder.num_hidden_layers": "num_layers",
    "decoder.num_hidden_layers": "num_decoder_layers",
    "decoder.scale_logits": "scale_decoder_outputs",
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
PLAIN = {"norm": "rms", "attention_bias": False, "mlp_bias": False}
T5_WORDS = both({**PLAIN, "position": "t5", "attention_multiplier": 1.0})


def t5_stack(side: str, feed_forward: int) -> tuple[Row, ...]:
    """One stack; the feed-forward comes after one attention in the encoder, after two in the decoder."""
    block = f"{side}.block.*.layer"
    return (
        (f"{side}.embed_tokens", f"{{{side}.embed_tokens,shared}}", "tie"),
        (f"{side}.position.table", f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"),
        (f"{side}.layers.*.self_attn_residual.norm", f"{block}.0.layer_norm"),
        (f"{side}.layers.*.self_attn.{{q,k,v,o}}_proj", f"{block}.0.SelfAttention.{{q,k,v,o}}"),
        (f"{side}.layers.*.mlp_residual.norm", f"{block}.{feed_forward}.layer_norm"),
        # A gate takes its up_proj along; without one the row after it finds up_proj.
        (f"{side}.layers.*.mlp.{{gate,up}}_proj", f"{block}.{feed_forward}.DenseReluDense.{{wi_0,wi_1}}"),
        (f"{side}.layers.*.mlp.up_proj", f"{block}.{feed_forward}.DenseReluDense.wi"),
        (f"{side}.layers.*.mlp.down_proj", f"{block}.{feed_forward}.DenseReluDense.wo"),
        (f"{side}.norm", f"{side}.final_layer_norm"),
    )


T5 = Architecture(
    "t5",
    QkvEncoderDecoderConfig,
    {**T5_FIELDS, **both({"hidden_act": activation("feed_forward_proj")})},
    T5_WORDS,
    (
        *t5_stack("encoder", 1),
        *t5_stack("decoder", 2),
        ("decoder.layers.*.cross_attn_residual.norm", "decoder.block.*.layer.1.layer_norm"),
        ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.block.*.layer.1.EncDecAttention.{q,k,v,o}"),
    ),
    heads("T5", "ForConditionalGeneration"),
    prefixes=("model.", ""),
    # Theirs says it is tied always; whether the table is shared, the weights show. Its buckets know no longest text.
    free=frozenset({"tie_word_embeddings", "initializer_range", *both({"max_position_embeddings": ""})}),
    # The dropout acts in a head that has no counterpart.
    inert=frozenset({"initializer_factor", "n_positions", "dense_act_fn", "classifier_dropout"}),
)
T5_GATED = replace(
    T5,
    fields={**T5_FIELDS, **both({"hidden_act": GATED_ACTIVATION})},
    words={**T5_WORDS, **both({"feed_forward": "glu"})},
)

BART_FIELDS: Fields = {
    **same("use_cache pad_token_id bos_token_id eos_token_id decoder_start_token_id tie_word_embeddings"),
    **both(same("max_position_embeddings attention_dropout activation_dropout scale_embedding")),
    **both({"hidden_size": "d_model", "hidden_act": activation("activation_function")}),
    **both({"embedding_dropout": "dropout", "residual_dropout": "dropout"}),
    **{f"{side}.num_hidden_layers": f"{side}_layers" for side in ("encoder", "decoder")},
    **{f"{side}.num_attention_heads": f"{side}_attention_heads" for side in ("encoder", "decoder")},
    **{f"{side}.intermediate_size": f"{side}_ffn_dim" for side in ("encoder", "decoder")},
    "initializer_range": "init_std",
}


def bart_stack(side: str) -> tuple[Row, ...]:
    """What encoder and decoder, BART and Marian have alike."""
    layer = f"{side}.layers.*"
    return (
        (f"{layer}.self_attn.{{q,k,v,o}}_proj", f"{layer}.self_attn.{{q_proj,k_proj,v_proj,out_proj}}"),
        (f"{layer}.self_attn_residual.norm", f"{layer}.self_attn_layer_norm"),
        (f"{layer}.cross_attn.{{q,k,v,o}}_proj", f"{layer}.encoder_attn.{{q_proj,k_proj,v_proj,out_proj}}"),
        (f"{layer}.cross_attn_residual.norm", f"{layer}.encoder_attn_layer_norm"),
        (f"{layer}.mlp.{{up,down}}_proj", f"{layer}.{{fc1,fc2}}"),
        (f"{layer}.mlp_residual.norm", f"{layer}.final_layer_norm"),
    )


STACKS = (*bart_stack("encoder"), *bart_stack("decoder"))
ONE_TABLE = tuple((f"{side}.embed_tokens", f"{{{side}.embed_tokens,shared}}", "tie") for side in ("encoder", "decoder"))
TWO_TABLES = (("{encoder,decoder}.embed_tokens", "{encoder,decoder}.embed_tokens"),)
SINUSOIDS = tuple(("", f"{side}.embed_positions.weight", "sinusoids") for side in ("encoder", "decoder"))

BART = Architecture(
    "bart",
    QkvEncoderDecoderConfig,
    {**BART_FIELDS, **both(same("vocab_size")), "share_embeddings": "tie_word_embeddings"},
    both({"norm_first": False, "embedding_norm": True, "position_offset": 2}),
    (
        *STACKS,
        *ONE_TABLE,
        ("{encoder,decoder}.embed_norm", "{encoder,decoder}.layernorm_embedding"),
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
    fields={
        **BART_FIELDS,
        "encoder.vocab_size": "vocab_size",
        "decoder.vocab_size": "decoder_vocab_size",
        "share_embeddings": "share_encoder_decoder_embeddings",
    },
    words={**both({"norm_first": False, "position": "sinusoidal_concat"}), "share_embeddings": True},
    rows=(*STACKS, *ONE_TABLE, *SINUSOIDS),
    heads=heads("Marian", "MTModel", LOGITS_BIAS),
    assumed={**BART.assumed, "normalize_embedding": False, "static_position_embeddings": True},
)
MARIAN_TWO_VOCABULARIES = replace(
    MARIAN,
    words={**MARIAN.words, "share_embeddings": False},
    rows=(*STACKS, *TWO_TABLES, *SINUSOIDS),
)

ENCODER_DECODERS = (T5_GATED, T5, BART, MARIAN, MARIAN_TWO_VOCABULARIES)
