"""Every official class that converts, at a tiny size: the rows of every test that compares with transformers."""

from typing import Any

from families import decoder, detection, dual_encoder, encoder, encoder_decoder, image, speech
from families.base import Family, Row

MODULES = (
    *(encoder, image, decoder, encoder_decoder, dual_encoder),
    speech,
    detection,
)
FAMILIES: dict[str, Family] = {family.model_type: family for module in MODULES for family in module.FAMILIES}
ROWS = [
    *(row for family in FAMILIES.values() for row in family.rows()),
    *(row for module in MODULES for row in module.VARIANTS),
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
    **dict.fromkeys(("BartForCausalLM", "MBartForCausalLM", "PegasusForCausalLM", "MarianForCausalLM"), DECODER_ALONE),
    "WhisperForAudioClassification": "a class for a whole recording, and no head of ours pools sound",
    "WhisperForCausalLM": DECODER_ALONE,
    "BertForNextSentencePrediction": "ours learns next sentences beside masked words only, in QkvEncoderForPreTraining",
    "GPT2DoubleHeadsModel": "words and a choice at once, which no decoder here has",
    "DetrForSegmentation": "paints masks as well, which no detector here does",
    "Dinov2Backbone": "feature maps for other models; output_hidden_states of ours gives the same states",
}


def variant(architecture: str, head: str, name: str, wrong: dict[str, Any] | None = None, **fields: Any) -> Row:
    """A class of the architecture of that name at another config."""
    return FAMILIES[architecture].variant(head, name, wrong, **fields)
