"""Official encoders over tokens, every class of each at a tiny size."""

from dataclasses import replace

from families.base import (
    END,
    SIZES,
    START,
    Family,
    Inputs,
    Row,
    choices,
    classes,
    pretraining,
    replaced,
    segments,
    spans,
    text,
    token_labels,
)

# Weights are drawn wide, so that each part of a model shows in its output; dropout stays off in evaluation, and its
# rates have to survive the way there and back.
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
HEADS: dict[str, Inputs] = {
    "Model": segments,
    "ForMaskedLM": token_labels,
    "ForSequenceClassification": classes,
    "ForTokenClassification": token_labels,
    "ForQuestionAnswering": spans,
    "ForMultipleChoice": choices,
}
FIRST_TOKEN = ("Model", "ForSequenceClassification", "ForMultipleChoice", "ForPreTraining")

BERT = Family(
    "bert",
    "Bert",
    {**HEADS, "ForPreTraining": pretraining},
    {**SIZES, **DROPOUT, "max_position_embeddings": 24, "initializer_range": 0.1, "layer_norm_eps": 1e-5},
    {"norm_eps": 1e-1},
    first_token=FIRST_TOKEN,
    told="positions",
)
ROBERTA = Family(
    "roberta",
    "Roberta",
    HEADS,
    {**SIZES, **DROPOUT, "max_position_embeddings": 24, "initializer_range": 0.1, "classifier_dropout": 0.4},
    {"position_offset": 3, "max_position_embeddings": 21},
    first_token=FIRST_TOKEN,
    told="offset",
)
XLM_ROBERTA = replace(ROBERTA, model_type="xlm-roberta", prefix="XLMRoberta", stored_as="Roberta")
# Without token types, and without a pooler in the base model.
PLAIN = {**HEADS, "Model": text}
DISTILBERT = Family(
    "distilbert",
    "DistilBert",
    PLAIN,
    {
        **{"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 24},
        **{"dropout": 0.2, "attention_dropout": 0.3, "qa_dropout": 0.15, "seq_classif_dropout": 0.4},
        "initializer_range": 0.1,
    },
    {"norm_eps": 1e-1},
    first_token=FIRST_TOKEN[1:],
    told="positions",
)
ELECTRA = Family(
    "electra",
    "Electra",
    {**HEADS, "ForPreTraining": replaced},
    {
        **{**SIZES, **DROPOUT, "embedding_size": 20, "max_position_embeddings": 24, "initializer_range": 0.1},
        **{"layer_norm_eps": 1e-5, "summary_last_dropout": 0.4},
    },
    {"norm_eps": 1e-1},
    first_token=FIRST_TOKEN[1:3],
    told="positions",
)
MODERNBERT = Family(
    "modernbert",
    "ModernBert",
    PLAIN,
    {
        **{**SIZES, "num_hidden_layers": 3, "local_attention": 4, "max_position_embeddings": 24},
        **{"global_attn_every_n_layers": 2, "initializer_range": 0.1, "classifier_dropout": 0.4},
        **{"attention_dropout": 0.3, "embedding_dropout": 0.2, "mlp_dropout": 0.15},
        **{"cls_token_id": START, "sep_token_id": END},
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
        },
    },
    {"sliding_window": 4},
    first_token=("ForSequenceClassification",),
)

FAMILIES = [BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, ELECTRA, MODERNBERT]
MODERN_BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
VARIANTS = [
    Row(BERT, "Model", {"norm_eps": 1e-1}, options={"add_pooling_layer": False}, name="no pooler"),
    BERT.variant("ForMaskedLM", "gelu_new", {"hidden_act": "relu"}, hidden_act="gelu_new"),
    ROBERTA.variant("ForMaskedLM", "relu", {"head_act": None}, hidden_act="relu"),
    ELECTRA.variant("ForMaskedLM", "relu", {"head_act": None}, hidden_act="relu", tie_word_embeddings=False),
    ELECTRA.variant("ForPreTraining", "one width", {"hidden_act": "relu"}, embedding_size=32),
    ELECTRA.variant("ForMultipleChoice", "tanh", {"head_act": "gelu"}, summary_activation="tanh"),
    ELECTRA.variant("ForSequenceClassification", "gelu", {"head_act": None}),
    DISTILBERT.variant("ForSequenceClassification", "relu", {"head_act": None}),
    MODERNBERT.variant("ForMaskedLM", "biased", {"head_act": "relu"}, **MODERN_BIASES, decoder_bias=False),
    MODERNBERT.variant("ForTokenClassification", "norm biases", norm_bias=True),
    MODERNBERT.variant("ForSequenceClassification", "mean", {"pooling": "first"}, classifier_pooling="mean"),
    MODERNBERT.variant("ForMultipleChoice", "mean", {"pooling": "first"}, classifier_pooling="mean"),
    MODERNBERT.variant(
        "ForTokenClassification",
        "one base",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10.0}},
        layer_types=["full_attention"] * 3,
    ),
]
