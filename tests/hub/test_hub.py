"""Published models work for people without qkv: every family and head, from the Hub, at its commit, and then offline.

One fresh process with an empty cache loads each, saves it, and loads it again; a second one is offline.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import PreTrainedModel, ViTImageProcessorPil

import qkv
import tiny
from families import ROWS
from families.base import Row
from loopback import serving
from loopback.server import environment
from qkv.scripts.common.inspector import Job, outputs
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.clean_process import Loaded, load_in_clean_process

pytestmark = pytest.mark.upstream

# Cases without an official class.
WITHOUT = ("Recurrent", "AudioEncoder", "Pair", "EncoderForContactPrediction", "EncoderDecoderEncoderModel")
EVERY: dict[str, Row | tiny.Case] = {str(row): row for row in ROWS}
EVERY |= {case.name: case for case in tiny.CASES if case.name.startswith(WITHOUT)}
# Each family and each way of reading; the other heads and architectures are the slow test's. The config of Electra is
# alike to that of BERT but for a size, its code is not: neither may be mistaken for the other.
QUICK = (
    "BertModel",
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "ElectraForMaskedLM",
    "ViTForImageClassification",
    "GPT2LMHeadModel",
    "T5ForConditionalGeneration",
    "T5EncoderModel",
    "CLIPModel",
    "DetrForObjectDetection",
    "Speech2TextForConditionalGeneration",
    "RecurrentForConditionalGeneration-rnnsearch",
    "AudioEncoderForCTC-speech",
    "PairForDistancePrediction-evoformer",
)
PICTURE = "ViTForImageClassification"


@dataclass
class Published:
    """A model, the job that asks the Hub for it, and the answer of a client without qkv."""

    model: PreTrainedModel
    job: Job
    found: Loaded
    home: Path

    def expected(self) -> dict[str, torch.Tensor]:
        return outputs(self.model, self.job.inputs)


def built(row: Row | tiny.Case) -> PreTrainedModel:
    """A model of ours."""
    return row.build() if isinstance(row, tiny.Case) else qkv.from_transformers(row.build()).eval()


def publish(rows: dict[str, Row | tiny.Case], place: Path) -> dict[str, Published]:
    """Build and upload each model, and let a client without qkv load it."""
    models, jobs, home = {name: built(row) for name, row in rows.items()}, {}, place / "clean"
    with serving() as hub:
        for name, model in models.items():
            if model._supports_sdpa:
                model.set_attn_implementation("sdpa")
            processors = [processor(model)] if name == PICTURE else []
            repo = f"alice/model-{len(jobs)}"
            folder = build_folder(model, place / repo, processors=processors, max_shard_size="40KB")
            jobs[name] = job(rows[name], model, repo, revision=hub.put(repo, folder), **extras(name, place))
        found = load_in_clean_process(
            [*jobs.values()], home, environment(hub.url, home / "cache", None, HF_HUB_OFFLINE=0)
        )
    return {name: Published(models[name], jobs[name], each, home) for name, each in zip(jobs, found, strict=True)}


def job(row: Row | tiny.Case, model: PreTrainedModel, source: str | Path, **options: object) -> Job:
    """To load a model with its Auto class, to save it, and to load it again."""
    auto = next(auto for auto, entry in model.config.auto_map.items() if entry.endswith(type(model).__name__))
    sides = () if isinstance(row, tiny.Case) else ("right" if "right" in row.sides else "none",)
    inputs = {name: value for name, value in row.inputs(*sides).items() if isinstance(value, torch.Tensor)}
    return Job(source, auto, inputs, again=True, **options)


def processor(model: PreTrainedModel) -> ViTImageProcessorPil:
    """Makes images of the model's size."""
    height, width = model.config.image_shape
    return ViTImageProcessorPil(size={"height": height, "width": width}, do_convert_rgb=True)


def extras(name: str, place: Path) -> dict[str, object]:
    """For one of the models: a picture for its pipeline."""
    if name != PICTURE:
        return {}
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3).save(place / "picture.png")
    return {"pipeline": "image-classification", "example": place / "picture.png"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Published]:
    return publish({name: EVERY[name] for name in QUICK}, tmp_path_factory.mktemp("published"))


def refuse_difference(one: Published, found: Loaded) -> None:
    expected = one.expected()
    assert expected and set(found.outputs) == set(expected)
    for name, value in expected.items():
        assert torch.equal(found.outputs[name], value), name


@pytest.mark.parametrize("name", QUICK)
def test_a_clean_client_gets_the_same_numbers(published: dict[str, Published], name: str) -> None:
    refuse_difference(published[name], published[name].found)


@pytest.mark.slow
def test_they_are_the_same_offline(published: dict[str, Published]) -> None:
    """The Hub is gone, the cache of the client is not."""
    home = next(iter(published.values())).home
    found = load_in_clean_process([one.job for one in published.values()], home)
    for one, each in zip(published.values(), found, strict=True):
        refuse_difference(one, each)


@torch.no_grad()
def test_the_comparison_would_notice_another_model(published: dict[str, Published]) -> None:
    one = published["GPT2LMHeadModel"]
    weight = one.model.model.norm.weight
    weight[0] = weight[0].nextafter(weight[0] + 1)
    with pytest.raises(AssertionError, match="logits"):
        refuse_difference(one, one.found)
    weight[0] = weight[0].nextafter(weight[0] - 1)


def test_the_pipeline_sees_the_file_of_a_picture(published: dict[str, Published]) -> None:
    one = published[PICTURE]
    labels = {entry["label"]: entry["score"] for entry in one.found.answer}
    assert set(labels) <= set(one.model.config.id2label.values()) and sum(labels.values()) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_every_other_head_and_architecture_too(published: dict[str, Published], tmp_path: Path) -> None:
    others = publish({name: row for name, row in EVERY.items() if name not in QUICK}, tmp_path)
    for name, one in others.items():
        try:
            refuse_difference(one, one.found)
        except AssertionError as error:
            raise AssertionError(name) from error
    classes = {type(one.model).__name__ for one in (*published.values(), *others.values())}
    assert classes == {name for name in qkv.modeling.__all__ if name.startswith("Qkv")}
