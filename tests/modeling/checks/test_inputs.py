"""What is right passes: the other side of `test_misuse.py`."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import EncoderDecoderCache

from qkv import QkvDecoderConfig, QkvDecoderForCausalLM, QkvDecoderModel, QkvEncoderConfig, QkvEncoderModel
from qkv.modeling.checks import inputs

pytestmark = pytest.mark.upstream

SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "max_position_embeddings": 16,
}
IDS = torch.arange(10).reshape(2, 5)
HIDDEN = torch.zeros(2, 5, 8)


def test_values_are_read_only_where_it_costs_nothing() -> None:
    assert inputs.can_read_values(IDS)
    assert inputs.can_read_values(torch.nn.Parameter(HIDDEN))
    assert not inputs.can_read_values(IDS.to("meta"))
    with FakeTensorMode() as mode:
        assert not inputs.can_read_values(mode.from_tensor(IDS))

    def compiled(ids: torch.Tensor) -> torch.Tensor:
        inputs.check_range("input_ids", ids, 3, "vocabulary", "mend it")
        inputs.check_boundaries(ids[0], HIDDEN)
        return ids + 1

    # Nothing is looked at, so nothing breaks the graph, and nothing is refused.
    assert torch.equal(torch.compile(compiled, fullgraph=True, backend="eager")(IDS), IDS + 1)


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_models_without_values_run(device: str) -> None:
    with torch.device("meta") if device == "meta" else FakeTensorMode(allow_non_fake_inputs=True):
        model = QkvDecoderForCausalLM(QkvDecoderConfig(**SIZES))
        ids = torch.full((2, 5), 99)
        assert model(ids, labels=ids, use_cache=False, skip_logits=False).logits.shape == (2, 5, 11)


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        ((2, 5, 11), IDS),
        ((2, 5, 11), torch.full((2, 5), -100)),
        ((2, 5, 11), torch.tensor([[0, 10, -100, 3, 4]] * 2, dtype=torch.int32)),
        ((10, 11), IDS.flatten()),
        ((2, 3), torch.tensor([[0], [2]])),
        ((1, 5, 11), torch.arange(5)),
        ((0, 3), torch.zeros(0, dtype=torch.long)),
    ],
)
def test_labels_that_fit(scores: tuple[int, ...], labels: torch.Tensor) -> None:
    inputs.check_labels(scores, labels, -100)


@pytest.mark.parametrize("ends", [[0, 5], [0, 1, 5], [0, 2, 2, 5], [0, 0, 5]])
def test_boundaries_that_fit(ends: list[int]) -> None:
    inputs.check_boundaries(torch.tensor(ends, dtype=torch.int32), HIDDEN)


@pytest.mark.parametrize("shape", [(1, 1, 5, 5), (2, 1, 5, 5), (2, 2, 5, 5), (1, 2, 5, 5)])
def test_finished_masks_that_fit(shape: tuple[int, ...]) -> None:
    mask = torch.ones(shape).bool().tril()
    assert QkvEncoderModel(QkvEncoderConfig(**SIZES))(IDS, mask).last_hidden_state.shape == (2, 5, 8)


def test_token_types_that_fit() -> None:
    inputs.check_token_types(torch.zeros_like(IDS), HIDDEN, 0)
    inputs.check_token_types(IDS % 2, HIDDEN, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda config: DynamicCache(config=config),
        lambda config: DynamicCache(),
        lambda config: StaticCache(config=config, max_cache_len=12),
        lambda config: EncoderDecoderCache(DynamicCache(config=config), DynamicCache()),
    ],
    ids=["dynamic", "growing", "static", "encoder-decoder"],
)
def test_caches_that_fit(make: Any) -> None:
    model = QkvDecoderModel(QkvDecoderConfig(**SIZES)).eval()
    cache = make(model.config)
    for chunk in (IDS[:, :3], IDS[:, 3:]):
        hidden = model(chunk, past_key_values=cache, use_cache=True).last_hidden_state
    torch.testing.assert_close(hidden, model(IDS).last_hidden_state[:, 3:])


def test_positions_end_with_the_table() -> None:
    model = QkvDecoderModel(QkvDecoderConfig(**SIZES)).eval()
    assert model(torch.zeros(1, 16, dtype=torch.long)).last_hidden_state.shape == (1, 16, 8)
    assert model(IDS[:1], position_ids=torch.arange(11, 16)[None]).last_hidden_state.shape == (1, 5, 8)
    # Padding is not counted: 4 real tokens in a row of 18.
    padded = (torch.arange(18) >= 14).long()[None]
    assert model(torch.zeros(1, 18, dtype=torch.long), padded).last_hidden_state.shape == (1, 18, 8)
