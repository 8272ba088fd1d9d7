"""The examples of the founding documents, in numbers, come out of the package."""

from typing import Any

import pytest
import torch

import tables
from comparison import encoder
from qkv import QkvEncoderModel
from qkv.modeling.attention import SelfAttention
from qkv.modeling.kernel import eager_attention
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import Embedded

TABLES: dict[str, Any] = tables.beside(__file__)


@pytest.mark.parametrize(("scale", "weights", "context"), TABLES["attention"]["found"])
def test_weights_and_contexts(scale: float, weights: list[float], context: list[float]) -> None:
    query, keys = (torch.tensor([[TABLES["attention"][name]]]) for name in ("query", "keys"))
    mixed, found = eager_attention(torch.nn.Module(), query, keys, keys, None, scale)
    assert found.flatten().tolist() == pytest.approx(weights, abs=1e-6)
    assert mixed.flatten().tolist() == pytest.approx(context, abs=1e-6)


@pytest.mark.parametrize(("weights", "projected"), TABLES["heads"])
def test_projections_to_heads(weights: list[list[float]], projected: list[list[float]]) -> None:
    module = SelfAttention(encoder(hidden_size=4, num_attention_heads=2, head_dim=2, attention_bias=False), 0)
    module.q_proj.weight.data[:2] = torch.tensor(weights).T
    head = module.query(torch.arange(1.0, 13).view(1, 3, 4))[0, 0]
    assert head.flatten().tolist() == pytest.approx(torch.tensor(projected).flatten().tolist(), abs=1e-5)


@pytest.mark.parametrize(("scores", "temperature", "probabilities"), TABLES["softmax"])
def test_softmax(scores: list[float], temperature: float, probabilities: list[float]) -> None:
    assert (torch.tensor(scores) / temperature).softmax(-1).tolist() == pytest.approx(probabilities, abs=6e-4)


def test_sinusoids() -> None:
    module = POSITIONS["sinusoidal"](encoder(position="sinusoidal", hidden_size=4))
    table = module.embed(Embedded(torch.zeros(1, 99, 4)), torch.arange(99)[None])[0].double()
    assert table[:3].flatten().tolist() == pytest.approx(torch.tensor(TABLES["sinusoids"]).flatten().tolist(), abs=6e-5)
    assert table.abs().max() <= 1 and torch.cdist(table, table).fill_diagonal_(1).min() > 0.009
    # One linear map leads from every place to the one seven behind it.
    shift = torch.linalg.lstsq(table[:-7], table[7:]).solution
    torch.testing.assert_close(table[:-7] @ shift, table[7:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rope"])
def test_without_positions_texts_have_no_order(position: str) -> None:
    model = QkvEncoderModel(encoder(position=position, initializer_range=1.0)).eval().double()
    dog, man = (model(input_ids=torch.tensor([ids])).last_hidden_state[0] for ids in ([4, 5, 6], [6, 5, 4]))
    assert torch.allclose(dog, man.flip(0)) == (position == "none")


def test_scores_have_the_variance_of_their_width() -> None:
    queries, keys = torch.randn(2, 1000, 64, generator=torch.Generator().manual_seed(0))
    assert abs((queries @ keys.T).mean()) < 0.1 and abs((queries @ keys.T).var() / 64 - 1) < 0.03
