"""Every official class that converts, at a tiny size: the rows of every test that compares with transformers."""

from typing import Any

import tables
from families import inputs
from families.base import Family, Row

TABLES = tables.beside(__file__, "families.yaml")


def family(model_type: str, *, heads: dict[str, str], **fields: Any) -> Family:
    """Make a family of a row of the table, whose heads name their inputs."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Family(model_type, heads={head: getattr(inputs, name) for head, name in heads.items()}, **given)


FAMILIES = {model_type: family(model_type, **fields) for model_type, fields in TABLES["families"].items()}


def variant(architecture: str, head: str, name: str, wrong: dict[str, Any] | None = None, **fields: Any) -> Row:
    """A class of the architecture of that name at another config."""
    return FAMILIES[architecture].variant(head, name, wrong, **fields)


ROWS = [row for family in FAMILIES.values() for row in family.rows()]
ROWS += [
    Row(FAMILIES[architecture], head, wrong or FAMILIES[architecture].wrong, fields, *options, name=name)
    for architecture, head, name, wrong, fields, *options in TABLES["variants"]
]
# Official classes without a counterpart of ours, and why.
MADE_CAUSAL = "an encoder made causal, with token types and a transform before its scores, which no decoder here has"
DECODER_ALONE = "a decoder alone that keeps cross-attention weights which nothing reads; ours has no place for them"
PROJECTED = "half of a dual encoder; get_text_features and get_image_features of QkvDualEncoderModel give the same"
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(("CLIPTextModelWithProjection", "CLIPVisionModelWithProjection"), PROJECTED),
    "CLIPForImageClassification": "keeps a norm that nothing reads; ours has no place for it",
    **dict.fromkeys(
        ("BertLMHeadModel", "RobertaForCausalLM", "XLMRobertaForCausalLM", "ElectraForCausalLM"), MADE_CAUSAL
    ),
    "BigBirdForCausalLM": MADE_CAUSAL,
    "BigBirdForQuestionAnswering": "a feed-forward network of its own before its scores, which no head here has",
    **dict.fromkeys(("BartForCausalLM", "MBartForCausalLM", "PegasusForCausalLM", "MarianForCausalLM"), DECODER_ALONE),
    "WhisperForAudioClassification": "a class for a whole recording, and no head of ours pools sound",
    "WhisperForCausalLM": DECODER_ALONE,
    "BertForNextSentencePrediction": "ours learns next sentences beside masked words only, in QkvEncoderForPreTraining",
    "GPT2DoubleHeadsModel": "words and a choice at once, which no decoder here has",
    "DetrForSegmentation": "paints masks as well, which no detector here does",
    "Dinov2Backbone": "feature maps for other models; output_hidden_states of ours gives the same states",
}
