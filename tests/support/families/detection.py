"""Official detectors, at a tiny size, on images of odd sizes."""

from typing import Any

import torch
from torch import Tensor

from families.base import BATCH, LABELS, Family

BACKBONE = {
    **{"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 12, 20], "depths": [1, 2, 1]},
    "out_features": ["stage1", "stage3"],
}
SIZES = {
    **{"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 2, "num_queries": 7, "init_std": 0.1},
    **{"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.15, "num_labels": LABELS},
}


def pictures(side: str) -> dict[str, Tensor]:
    """Images of an odd size; all but the first padded at the right and below, more and more."""
    pixels = torch.randn(BATCH, 3, 61, 83, generator=torch.Generator().manual_seed(1))
    if side == "none":
        return {"pixel_values": pixels}
    rows, columns, less = torch.arange(61)[:, None], torch.arange(83), torch.arange(BATCH)[:, None, None]
    mask = ((rows < 61 - 11 * less) & (columns < 83 - 20 * less)).long()
    return {"pixel_values": pixels * mask[:, None], "pixel_mask": mask}


def objects(side: str) -> dict[str, Any]:
    """None in the last image."""
    generator = torch.Generator().manual_seed(2)
    labels = [
        {"class_labels": torch.arange(count) % LABELS, "boxes": torch.rand(count, 4, generator=generator) / 2 + 0.1}
        for count in (3, 1, 0)
    ]
    return {**pictures(side), "labels": labels}


DETR = Family(
    "detr",
    "Detr",
    {"Model": pictures, "ForObjectDetection": objects},
    {**SIZES, "backbone_config": BACKBONE, "use_timm_backbone": False},
    {"encoder.position": "none"},
    sides=("none", "right"),
    frozen=r"\bbackbone\.",
)

FAMILIES = [DETR]
VARIANTS = [
    DETR.variant("Model", "gelu", {"decoder.hidden_act": "relu"}, activation_function="gelu"),
    DETR.variant(
        "ForObjectDetection",
        "convnext",
        {"encoder.norm_eps": 1e-1},
        backbone_config={"model_type": "convnext", "hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2},
        eos_coefficient=0.5,
    ),
]
