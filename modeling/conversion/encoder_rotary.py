"""Conversion of text encoders with rotary positions: ModernBERT, as a table.

In training, stock ModernBERT drops out parts of the attention branch at `attention_dropout`, and ours does not.
"""

from ...configuration.configuration_encoder import QkvEncoderConfig
from ..modeling_encoder import (
    QkvEncoderForMultipleChoice,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
)
from ..modeling_encoder_pretraining import QkvEncoderForMaskedLM
from .config import (
    BASE,
    LAYER_TYPES,
    PATTERNS,
    SYNONYMS,
    Architecture,
    Codec,
    Head,
    Values,
    activation,
    our_pattern,
    same,
    their_layers,
)
from .encoder import CLASSIFIER, TEXT_FIELDS

POOLINGS = {"cls": "first", "mean": "mean"}


def their_rope(parameters: Values | None, ours: Values) -> Values:
    """Return the parameters of each type of layer, under its name; one set for all of ours is each type's."""
    return {name: parameters.get(word, parameters) for word, name in LAYER_TYPES.items()} if parameters else {}


TRANSFORM = (("transform.dense", "head.dense"), ("transform.norm", "head.norm"))
CLASSES = (
    (QkvEncoderForSequenceClassification, "SequenceClassification"),
    (QkvEncoderForTokenClassification, "TokenClassification"),
    (QkvEncoderForMultipleChoice, "MultipleChoice"),
)

MODERNBERT = Architecture(
    "modernbert",
    QkvEncoderConfig,
    {
        **TEXT_FIELDS,
        **same("hidden_size intermediate_size num_hidden_layers num_attention_heads initializer_range"),
        **same("norm_eps norm_bias attention_bias mlp_bias attention_dropout embedding_dropout classifier_dropout"),
        # Ours carries along what only a tokenizer reads, if it was given.
        **same("cls_token_id sep_token_id"),
        **{"activation_dropout": "mlp_dropout", "hidden_act": activation("hidden_activation")},
        **{"head_bias": "classifier_bias", "lm_head_bias": "decoder_bias"},
        "head_act": Codec(
            "classifier_activation",
            read=lambda act, theirs: SYNONYMS.get(act, act),
            write=lambda act, ours: act or ours["hidden_act"],
        ),
        "pattern": Codec("layer_types", lambda types, theirs: our_pattern(types), their_layers),
        # Theirs counts both sides of a token, ours one side and the token.
        "sliding_window": Codec(
            "local_attention",
            read=lambda width, theirs: width // 2 + 1,
            write=lambda window, ours: 2 * ((window or 1) - 1),
        ),
        "rope_parameters": Codec(
            "rope_parameters",
            lambda parameters, theirs: {PATTERNS[name]: values for name, values in parameters.items()},
            their_rope,
        ),
        "pooling": Codec(
            "classifier_pooling",
            read=lambda name, theirs: POOLINGS[name],
            write=lambda word, ours: "mean" if word == "mean" else "cls",
        ),
    },
    {
        **{"position": "rope", "feed_forward": "glu", "type_vocab_size": 0},
        **{"embedding_norm": "instead", "head_transform": True},
    },
    (
        ("embed_tokens", "embeddings.tok_embeddings"),
        ("embed_norm", "embeddings.norm"),
        ("layers.*.self_attn_residual.norm", "layers.*.attn_norm"),
        ("layers.*.self_attn.{q,k,v}_proj", "layers.*.attn.Wqkv", "split"),
        ("layers.*.self_attn.o_proj", "layers.*.attn.Wo"),
        ("layers.*.mlp_residual.norm", "layers.*.mlp_norm"),
        ("layers.*.mlp.{gate,up}_proj", "layers.*.mlp.Wi", "split"),
        ("layers.*.mlp.down_proj", "layers.*.mlp.Wo"),
        ("norm", "final_norm"),
    ),
    (
        Head(QkvEncoderModel, "ModernBertModel", pooler=False, prefixes=BASE),
        Head(
            QkvEncoderForMaskedLM,
            "ModernBertForMaskedLM",
            (("lm_head.dense", "head.dense"), ("lm_head.norm", "head.norm"), ("lm_head.decoder", "decoder")),
        ),
        *(Head(ours, f"ModernBertFor{task}", (*TRANSFORM, *CLASSIFIER)) for ours, task in CLASSES),
        Head(
            QkvEncoderForQuestionAnswering,
            "ModernBertForQuestionAnswering",
            (*TRANSFORM, ("qa_outputs", "classifier")),
            fields={"qa_dropout": "classifier_dropout"},
        ),
    ),
    prefixes=("model.", "model."),
    # How it was initialised, how it is run, and what `layer_types` and `norm_eps` say again.
    inert=frozenset(
        "initializer_cutoff_factor deterministic_flash_attn repad_logits_with_grad "
        "global_attn_every_n_layers layer_norm_eps".split()
    ),
    assumed={"position_embedding_type": "absolute"},
)

ROTARY_ENCODERS = (MODERNBERT,)
