"""Conversion of protein language models: ESM-1b and ESM-2, as a table.

Stock ESM passes `inputs_embeds` by its embeddings: it adds no positions and no norm to them, where ours does.
"""

from ...configuration.configuration_encoder import QkvEncoderConfig
from ..modeling_encoder import QkvEncoderForSequenceClassification, QkvEncoderForTokenClassification
from ..modeling_encoder_pretraining import QkvEncoderForContactPrediction, QkvEncoderForMaskedLM
from .config import Architecture, Codec, Head, Values, same
from .encoder import CLASSIFIER, POOLED, POOLED_CLASSIFIER, base

POSITIONS = {"rotary": "rope", "absolute": "learned"}
POSITION_TYPES = {word: name for name, word in POSITIONS.items()}


def first_row(theirs: Values) -> int:
    """Return the row of the table of positions that the first token has, which rotary positions have none of."""
    return theirs["pad_token_id"] + 1 if theirs["position_embedding_type"] == "absolute" else 0


def our_rope(theta: float, theirs: Values) -> Values | None:
    """Return the parameters of a rotation by this base, None where there is none."""
    return {"rope_type": "default", "rope_theta": theta} if theirs["position_embedding_type"] == "rotary" else None


ESM = Architecture(
    "esm",
    QkvEncoderConfig,
    {
        **same("hidden_size num_hidden_layers num_attention_heads intermediate_size initializer_range vocab_size"),
        **same("pad_token_id bos_token_id eos_token_id mask_token_id tie_word_embeddings"),
        "norm_eps": "layer_norm_eps",
        # Theirs leaves out the dropout of embeddings.
        "residual_dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "embedding_norm": Codec("emb_layer_norm_before", read=lambda normed, theirs: bool(normed)),
        "scale_embedding": Codec(
            "token_dropout",
            read=lambda dropped, theirs: "token_dropout" if dropped else False,
            write=lambda word, ours: word == "token_dropout",
        ),
        "position": Codec(
            "position_embedding_type",
            read=lambda name, theirs: POSITIONS.get(name, name),
            write=lambda word, ours: POSITION_TYPES.get(word, word),
        ),
        "rope_parameters": Codec("rope_theta", our_rope, lambda rope, ours: (rope or {}).get("rope_theta", 10000.0)),
        # The rows of the table below the first position belong to its length.
        "max_position_embeddings": Codec(
            "max_position_embeddings",
            read=lambda rows, theirs: rows - first_row(theirs),
            write=lambda length, ours: length + (ours["position_offset"] if ours["position"] == "learned" else 0),
        ),
        "position_offset": Codec(
            "pad_token_id",
            read=lambda pad, theirs: first_row(theirs),
            write=lambda offset, ours: offset - 1 if ours["position"] == "learned" else ours["pad_token_id"],
        ),
    },
    {"contact_head": "attention"},
    (
        ("embed_tokens", "embeddings.word_embeddings"),
        ("position.table", "embeddings.position_embeddings"),
        ("position.inv_freq", "rotary_embeddings.inv_freq"),
        ("embed_norm", "embeddings.layer_norm"),
        ("layers.*.self_attn_residual.norm", "encoder.layer.*.attention.LayerNorm"),
        ("layers.*.self_attn.{q,k,v}_proj", "encoder.layer.*.attention.self.{query,key,value}"),
        ("layers.*.self_attn.o_proj", "encoder.layer.*.attention.output.dense"),
        ("layers.*.mlp_residual.norm", "encoder.layer.*.LayerNorm"),
        ("layers.*.mlp.up_proj", "encoder.layer.*.intermediate.dense"),
        ("layers.*.mlp.down_proj", "encoder.layer.*.output.dense"),
        ("norm", "encoder.emb_layer_norm_after"),
        ("pooler.dense", "pooler.dense"),
        ("contact_head.regression", "contact_head.regression"),
    ),
    (
        *base("EsmModel"),
        # Without a pooler theirs is this class, too, by predict_contacts.
        Head(QkvEncoderForContactPrediction, "EsmModel", pooler=False, prefixes=("model.", "")),
        Head(
            QkvEncoderForMaskedLM,
            "EsmForMaskedLM",
            (
                ("lm_head.{dense,norm}", "lm_head.{dense,layer_norm}"),
                ("lm_head.decoder.weight", "lm_head.decoder.weight"),
                ("lm_head.decoder.bias", "lm_head.bias"),
            ),
        ),
        Head(
            QkvEncoderForSequenceClassification,
            "EsmForSequenceClassification",
            POOLED_CLASSIFIER,
            POOLED,
            {"pooling_dropout": "hidden_dropout_prob", "classifier_dropout": "hidden_dropout_prob"},
        ),
        Head(
            QkvEncoderForTokenClassification,
            "EsmForTokenClassification",
            CLASSIFIER,
            fields={"classifier_dropout": "hidden_dropout_prob"},
        ),
    ),
    prefixes=("model.", "esm."),
    free=frozenset({"inv_freq_dtype"}),
    # A cache is for is_decoder=True and the config of a fold for is_folding_model=True, which are refused; classifiers
    # drop out at the rate of the layers.
    inert=frozenset({"use_cache", "esmfold_config", "vocab_list", "classifier_dropout"}),
    assumed={"hidden_act": "gelu"},
)

PROTEINS = (ESM,)
