"""A head that reads the first tokens: the last layer computes no others, unless something looks at them.

Values and gradients are those of the whole layer for every position, pattern and padding.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args
from unittest import mock

import pytest
import torch
from torch import Tensor

import tiny
from comparison import assert_alike, encoder, exact, jittered
from qkv import modeling
from qkv.configuration.axes import PatternName, PositionName
from qkv.modeling import execution
from qkv.modeling.feed_forward import MLP
from sampling import sampled

LENGTH = 9
IDS = torch.randint(11, (3, LENGTH), generator=torch.Generator().manual_seed(0))
RIGHT = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0, 0], [1] * LENGTH, [1, 0, 0, 0, 0, 0, 0, 0, 0]])
MASKS = {"none": None, "right": RIGHT, "left": RIGHT.flip(1)}
SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_labels": 3, "sliding_window": 3, "block_size": 2}
SIZES |= {"fixed_columns": 1, "text_length": 1, "grid_columns": 4, "grid_kernel": 3}
READ = {"first": 1, "dense": 1, "first_norm": 1, "mean": LENGTH, "end": LENGTH, "highest": LENGTH}
IMAGES = torch.randn(2, 3, 12, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@contextmanager
def widths() -> Iterator[list[int]]:
    """The numbers of tokens that the feed-forward networks are given, layer by layer."""
    seen, inner = [], MLP.inner

    def watched(self: MLP, hidden: Tensor) -> Tensor:
        seen.append(hidden.shape[0] * hidden.shape[1])
        return inner(self, hidden)

    with mock.patch.object(MLP, "inner", watched):
        yield seen


def step(model: Any, **inputs: Any) -> list[Tensor]:
    """Logits, and the gradients of their squares."""
    with exact():
        logits = model(**inputs).logits
    gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()), allow_unused=True)
    return [logits, *(gradient for gradient in gradients if gradient is not None)]


def compare(model: Any, last: int, **inputs: Any) -> None:
    """Equal logits and gradients; the last layer computes `last` tokens."""
    with widths() as seen:
        narrow = step(model, **inputs)
        assert min(seen) == last
    with mock.patch.object(execution, "PLANS", []):
        wide = step(model, **inputs)
    assert len(narrow) > 10
    assert_alike(narrow, wide)


def classifier(**fields: Any) -> Any:
    return jittered(modeling.QkvEncoderForSequenceClassification(encoder(**SIZES, **fields))).eval()


CASES = itertools.product(get_args(PositionName), get_args(PatternName), MASKS, ["first", "dense"], [True, False])


@pytest.mark.parametrize(("position", "pattern", "mask", "pooling", "norm_first"), sampled(CASES, 17))
@pytest.mark.costly(40)
def test_the_first_token_alone(position: str, pattern: str, mask: str, pooling: str, *, norm_first: bool) -> None:
    model = classifier(position=position, pattern=pattern, pooling=pooling, norm_first=norm_first)
    compare(model, 3 if mask != "left" else int(RIGHT.sum()), input_ids=IDS, attention_mask=MASKS[mask])


@pytest.mark.parametrize("pooling", READ)
def test_each_pooling_reads_its_tokens(pooling: str) -> None:
    compare(classifier(pooling=pooling, eos_token_id=int(IDS[0, 4])), READ[pooling], input_ids=IDS[:1])


@pytest.mark.parametrize(("kind", "tokens"), [("vit", 2), ("deit", 4), ("mean", 24), ("dinov2", 26)])
def test_images(kind: str, tokens: int) -> None:
    model = jittered(modeling.QkvImageEncoderForImageClassification(tiny.image_encoder(kind))).eval()
    compare(model, tokens, pixel_values=IMAGES)


def test_gradient_checkpointing() -> None:
    model = jittered(modeling.QkvImageEncoderForImageClassification(tiny.image_encoder("vit", drop_path_rate=0.0)))
    model.train().activation_checkpointing_enable({"use_reentrant": False})
    compare(model, 2, pixel_values=IMAGES.clone().requires_grad_())


@pytest.mark.parametrize("looked_at", ["output_hidden_states", "output_attentions", "hook"])
def test_all_tokens_are_computed_where_they_are_looked_at(looked_at: str) -> None:
    model, shapes = modeling.QkvImageEncoderForImageClassification(tiny.image_encoder("vit")).eval().double(), []
    if looked_at == "hook":
        model.model.register_forward_hook(lambda _, __, output: shapes.append(output.last_hidden_state.shape[1]))
    with widths() as seen:
        model(pixel_values=IMAGES, **({} if looked_at == "hook" else {looked_at: True}))
    assert set(seen) == {26} and shapes in ([], [13])
