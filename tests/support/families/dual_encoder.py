"""Official dual encoders and their halves, at a tiny size."""

import torch
from torch import Tensor

from families.base import END, IDS, SIZES, VOCABULARY, Family, images, sentences

SMALL = {**SIZES, "attention_dropout": 0.2, "initializer_range": 0.1}
IMAGE = {**SMALL, "image_size": 12, "patch_size": 4}
TEXT = {**SMALL, **IDS, "vocab_size": VOCABULARY, "max_position_embeddings": 24}
# Of other widths, so that none can be taken for the other.
WIDER = {"hidden_size": 40, "num_attention_heads": 5, "intermediate_size": 56, "num_hidden_layers": 3}


def texts(side: str) -> dict[str, Tensor]:
    return {name: value for name, value in sentences(side).items() if name != "labels"}


def captions(side: str) -> dict[str, Tensor]:
    return {**texts(side), **images(side), "return_loss": torch.tensor(True)}


CLIP = Family(
    "clip",
    "CLIP",
    {"Model": captions},
    {"text_config": TEXT, "vision_config": {**IMAGE, **WIDER}, "projection_dim": 20},
    {"vision_config.norm_eps": 1e-1},
    told="positions",
)
TEXT_ALONE = Family("clip_text_model", "CLIPText", {"Model": texts}, TEXT, {"hidden_act": "relu"}, told="positions")
IMAGE_ALONE = Family("clip_vision_model", "CLIPVision", {"Model": images}, IMAGE, {"norm_eps": 1e-1}, sides=("none",))

FAMILIES = [CLIP, TEXT_ALONE, IMAGE_ALONE]
VARIANTS = [
    CLIP.variant(
        "Model",
        "first release",
        {"text_config.pooling": "end", "text_config.eos_token_id": END},
        text_config={**TEXT, "eos_token_id": 2},
        logit_scale_init_value=4.0,
    ),
    CLIP.variant(
        "Model",
        "gelu",
        {"text_config.hidden_act": "quick_gelu"},
        text_config={**TEXT, "hidden_act": "gelu"},
        vision_config={**IMAGE, "hidden_act": "gelu"},
    ),
    TEXT_ALONE.variant("Model", "first release", {"pooling": "first"}, eos_token_id=2),
]
