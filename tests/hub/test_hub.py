"""Published models work for people without qkv: every family and head, from the Hub, at its commit, saved and loaded again.

One fresh process with an empty cache loads all.
"""

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

import qkv
import tiny
from families import ROWS
from families.base import Row
from loopback import serving
from loopback.server import environment
from qkv.scripts.common.inspector import Job, outputs
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.hub.screen import scan
from qkv.scripts.publishing.integrity.loading import load_in_clean_process

# Cases without an official class.
WITHOUT = ("Recurrent", "AudioEncoder", "Pair", "Folding", "EncoderForContactPrediction", "EncoderDecoderEncoderModel")
EVERY: dict[str, Row | tiny.Case] = {str(row): row for row in ROWS}
EVERY |= {case.name: case for case in tiny.CASES if case.name.startswith(WITHOUT)}
# Each family and each way of reading; the other heads and architectures are the slow test's. The config of Electra is
# alike to that of BERT but for a size, its code is not: neither may be mistaken for the other.
QUICK = (
    "BertModel BertForMaskedLM BertForMultipleChoice ElectraForMaskedLM ViTForImageClassification GPT2LMHeadModel "
    "T5ForConditionalGeneration T5EncoderModel CLIPModel DetrForObjectDetection Speech2TextForConditionalGeneration "
    "RecurrentForConditionalGeneration-rnnsearch AudioEncoderForCTC-speech PairForDistancePrediction-evoformer "
    "FoldingModel-esmfold CohereForCausalLM"
).split()
# `make compatibility` loads all of them from folders.
FROM_THE_HUB = QUICK[1::6]


def built(row: Row | tiny.Case) -> PreTrainedModel:
    """A model of ours, with the attention and experts that a loaded one has."""
    model = row.build() if isinstance(row, tiny.Case) else qkv.from_transformers(row.build()).eval()
    if model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    if "moe" in getattr(model.config, "feed_forward", ()):
        model.set_experts_implementation("grouped_mm")
    return model


def job(row: Row | tiny.Case, model: PreTrainedModel, source: str | Path, commit: str | None = None) -> Job:
    """To load a model with its Auto class, to save it, and to load it again."""
    auto = next(auto for auto, entry in model.config.auto_map.items() if entry.endswith(type(model).__name__))
    sides = () if isinstance(row, tiny.Case) else ("right" if "right" in row.sides else "none",)
    inputs = {name: value for name, value in row.inputs(*sides).items() if isinstance(value, torch.Tensor)}
    return Job(source, auto, inputs, revision=commit, again=True)


def different(names: list[str], place: Path) -> list[str]:
    """Publish models, and return the names of models that give a client without qkv other numbers."""
    models, jobs, home = {name: built(EVERY[name]) for name in names}, {}, place / "clean"
    with serving() as hub:
        for name, model in models.items():
            repo = f"alice/model-{len(jobs)}"
            scan(folder := build_folder(model, place / repo, max_shard_size="40KB"))
            jobs[name] = job(EVERY[name], model, repo, hub.put(repo, folder))
        variables = environment(hub.url, home / "cache", None, HF_HUB_OFFLINE=0)
        found = load_in_clean_process([*jobs.values()], home, variables)
    wrong = []
    for (name, each), answer in zip(jobs.items(), found, strict=True):
        expected, actual = outputs(models[name], each.inputs), answer.outputs
        is_same = expected.keys() == actual.keys() and all(torch.equal(actual[key], expected[key]) for key in expected)
        wrong += [] if expected and is_same else [name]
    return wrong


def test_a_clean_client_gets_the_same_numbers(tmp_path: Path) -> None:
    assert different([*FROM_THE_HUB], tmp_path) == []


@pytest.mark.slow
def test_of_every_other_head_and_architecture_too(tmp_path: Path) -> None:
    assert different([name for name in EVERY if name not in FROM_THE_HUB], tmp_path) == []
