"""Which DETRs convert, what of ours is none, and what the published files say beside."""

from typing import Any

import pytest
import torch
from transformers import DetrConfig

import qkv
import tiny
from families import variant
from qkv.modeling.conversion.config import lost_on_reading
from qkv.modeling.conversion.convert import from_transformers, to_transformers
from qkv.modeling.conversion.detection import DETR

RESNET = {"model_type": "resnet", "out_features": ["stage4"], "depths": [3, 4, 6, 3], "layer_type": "bottleneck"}
# What the first releases wrote, and the revision of each without timm says.
PUBLISHED = {
    **{"backbone": None, "backbone_config": RESNET, "use_timm_backbone": False, "use_pretrained_backbone": False},
    **{"classifier_dropout": 0.0, "max_position_embeddings": 1024, "scale_embedding": False, "num_hidden_layers": 6},
    **{"dilation": False, "num_queries": 100, "eos_coefficient": 0.1, "id2label": {"0": "N/A", "1": "person"}},
}


def test_the_published_config_loses_nothing() -> None:
    assert [lost_on_reading(DETR, head, DetrConfig(**PUBLISHED)) for head in DETR.heads] == [[], []]


def small(**fields: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return qkv.presets.detr_r50(**sizes, backbone_config=tiny.DETECTORS["detr"]["backbone_config"], **fields)


def test_the_preset_is_the_official_config() -> None:
    back = to_transformers(qkv.QkvDetectionForObjectDetection(small()))
    assert type(back).__name__ == "DetrForObjectDetection" and not back.config.auxiliary_loss


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"norm_first": True}, "encoder.norm_first=True would become False"),
        ({"norm_eps": 1e-3}, "encoder.norm_eps=0.001 would become 1e-05"),
        ({"encoder": {"position": "none"}}, "encoder.position='none' would become 'sinusoidal_2d'"),
        ({"encoder": {"position": "sinusoidal_2d_and_input"}}, "and_input' would become 'sinusoidal_2d'"),
        ({"decoder": {"final_norm": False}}, "decoder.final_norm=False would become True"),
        ({"embedding_dropout": 0.1}, "encoder.embedding_dropout=0.1 would become 0.0"),
    ],
)
def test_what_detr_has_not_is_named(fields: dict[str, Any], sentence: str) -> None:
    model = qkv.QkvDetectionForObjectDetection(small(**fields))
    with pytest.raises(ValueError, match=f"in its nearest, DetrForObjectDetection, .*{sentence}"):
        to_transformers(model)


def test_patches_are_no_detr() -> None:
    with pytest.raises(ValueError, match="stock transformers has no such model"):
        to_transformers(qkv.QkvDetectionModel(tiny.detector("patches")))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"auxiliary_loss": True},
            "auxiliary_loss=True has it normalise between the layers, which changes its numbers",
        ),
        (
            {"position_embedding_type": "learned"},
            "position='learned' is not one of sinusoidal_2d, sinusoidal_2d_and_input, none",
        ),
    ],
)
def test_what_changes_numbers_there_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"DetrModel cannot be converted: {sentence}"):
        from_transformers(variant("detr", "Model", "", **fields).build())


def test_frozen_norms_come_along() -> None:
    official = variant("detr", "Model", "").build()
    ours = from_transformers(official)
    name = "embedder.embedder.normalization.running_var"
    theirs = official.backbone.model.state_dict()[name]
    assert torch.equal(ours.encoder.embed_tokens.backbone.model.state_dict()[name], theirs)
    assert (theirs != 1).all() and all(weight.requires_grad for weight in ours.parameters())
