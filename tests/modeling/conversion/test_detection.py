"""What is peculiar to the table of DETR."""

import torch

from families import variant
from qkv.modeling.conversion.convert import from_transformers


def test_frozen_norms_come_along() -> None:
    official = variant("detr", "Model", "").build()
    ours = from_transformers(official)
    name = "embedder.embedder.normalization.running_var"
    theirs = official.backbone.model.state_dict()[name]
    assert torch.equal(ours.encoder.embed_tokens.backbone.model.state_dict()[name], theirs)
    assert (theirs != 1).all() and all(weight.requires_grad for weight in ours.parameters())
