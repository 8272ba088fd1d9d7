"""Official encoders over tokens, every class of each at a tiny size."""

from families_base import SIZES, Family, Inputs, Row, choices, classes, pretraining, segments, spans, token_labels

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
    {"position_offset": 1, "max_position_embeddings": 23},
    first_token=FIRST_TOKEN,
    told="offset",
)

FAMILIES = [BERT, ROBERTA]
VARIANTS = [
    Row(BERT, "Model", {"norm_eps": 1e-1}, options={"add_pooling_layer": False}, name="no pooler"),
    BERT.variant("ForMaskedLM", "gelu_new", {"hidden_act": "relu"}, hidden_act="gelu_new"),
]
