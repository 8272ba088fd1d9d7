"""Without padding the layers compute what they compute with it, for every position, pattern, padding and family."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args
from unittest import mock

import pytest
import torch
from torch import Tensor

import tiny
from comparison import EXACT, decoder, encoder, exact, jittered
from qkv.configuration.axes import PatternName, PositionName
from qkv.modeling.fast_paths import unpadding
from qkv.modeling.layer import Layer
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from qkv.modeling.modeling_encoder_decoder import QkvEncoderDecoderModel
from sampling import sampled

LENGTH = 9
RIGHT = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0, 0], [1] * LENGTH, [1, 0, 0, 0, 0, 0, 0, 0, 0]])
PADDING = {
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "inside": torch.tensor([[1, 1, 0, 1, 1, 1, 0, 0, 1], [0, 1, 1, 0, 0, 0, 0, 1, 0], [1] * LENGTH]),
    "empty row": torch.tensor([[1] * LENGTH, [0] * LENGTH, [1, 1, 1, 0, 0, 0, 0, 0, 0]]),
}
SIZES = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 3,
    "block_size": 2,
    "fixed_columns": 1,
    "text_length": 1,
    "grid_columns": 4,
    "grid_kernel": 3,
    "num_hidden_layers": 2,
}
IDS = torch.randint(11, (3, LENGTH), generator=torch.Generator().manual_seed(0))
STACKS = {"encoder": (encoder, QkvEncoderModel), "decoder": (decoder, QkvDecoderModel)}


@contextmanager
def rows_of_layers() -> Iterator[list[int]]:
    """The numbers of rows that layers are given."""
    rows = []
    forward = Layer.forward

    def watched(self: Layer, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rows.append(hidden.shape[0])
        return forward(self, hidden, *args, **kwargs)

    with mock.patch.object(Layer, "forward", watched):
        yield rows


def run(model: Any, *, removed: bool | None, **inputs: Any) -> tuple[Tensor, list[Tensor]]:
    """The last hidden state, and the gradients of a weighting of its real tokens."""
    model.remove_padding = removed
    real = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    hidden = model(**inputs).last_hidden_state
    real = torch.ones(hidden.shape[:2]) if real is None else real
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1)) * real[..., None]
    gradients = torch.autograd.grad((hidden * weights).sum(), list(model.parameters()), allow_unused=True)
    return hidden * real[..., None], [gradient for gradient in gradients if gradient is not None]


def assert_equal(model: Any, rows: set[int], **inputs: Any) -> None:
    """Equal values and gradients, with and without removal; `rows` is what layers see without padding."""
    with exact(), rows_of_layers() as seen:
        plain = run(model, removed=False, **inputs)
        assert set(seen) == {3}
        seen.clear()
        fast = run(model, removed=True, **inputs)
    assert set(seen) == rows
    assert len(plain[1]) == len(fast[1]) > 10
    for one, other in zip([plain[0], *plain[1]], [fast[0], *fast[1]], strict=True):
        assert (one - other).abs().max() <= 100 * EXACT * (1 + one.abs().max())


CASES = itertools.product(STACKS, get_args(PositionName), [*get_args(PatternName), "mixed"], PADDING)


@pytest.mark.parametrize(("stack", "position", "pattern", "padding"), sampled(CASES, 11))
def test_values_and_gradients_are_those_with_padding(stack: str, position: str, pattern: str, padding: str) -> None:
    model = built(stack, position=position, pattern=["full", "sliding"] if pattern == "mixed" else pattern)
    assert_equal(model, {1}, input_ids=IDS, attention_mask=PADDING[padding], **no_cache(stack))


def built(stack: str, *, remove_padding: bool | None = None, **fields: Any) -> Any:
    config, model_class = STACKS[stack]
    model = jittered(model_class(config(**SIZES, **fields)))
    model.remove_padding = remove_padding
    return model


def no_cache(stack: str) -> dict[str, bool]:
    return {"use_cache": False} if stack == "decoder" else {}


@pytest.mark.parametrize("position", ["learned", "rope", "none"])
@pytest.mark.parametrize("stack", STACKS)
def test_packed_documents_are_attended_one_by_one(stack: str, position: str) -> None:
    model = built(stack, position=position, pattern=["full", "block_sparse"])
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 5], [*range(9)], [4, 5, 0, 1, 0, 0, 1, 2, 3]])
    assert_equal(model, {1}, input_ids=IDS, position_ids=places, **no_cache(stack))
    assert_equal(model, {1}, input_ids=IDS, position_ids=places, attention_mask=RIGHT, **no_cache(stack))


def test_documents_by_their_boundaries() -> None:
    model, boundaries = built("decoder", position="rope"), torch.tensor([0, 2, 3, 9], dtype=torch.int32)
    ids = IDS[:1]
    with exact():
        packed = model(ids, cu_seq_lens_q=boundaries, use_cache=False).last_hidden_state
        alone = [model(part, use_cache=False).last_hidden_state for part in ids.split([2, 1, 6], dim=1)]
    assert (packed - torch.cat(alone, dim=1)).abs().max() <= EXACT


@pytest.mark.parametrize("position", ["t5", "rope"])
def test_gradient_checkpointing(position: str) -> None:
    model = built("encoder", position=position).train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    expected, padded = (
        run_backward(model, removed=removed, input_ids=IDS, attention_mask=RIGHT) for removed in (False, True)
    )
    for one, other in zip(expected, padded, strict=True):
        assert (one - other).abs().max() <= 100 * EXACT * (1 + one.abs().max())


def run_backward(model: Any, *, removed: bool, **inputs: Any) -> list[Tensor]:
    """The gradients that `backward` leaves."""
    model.zero_grad()
    model.remove_padding = removed
    with exact():
        hidden = model(**inputs).last_hidden_state
        (hidden * torch.arange(hidden.numel()).view_as(hidden).cos() * RIGHT[..., None]).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("kind", ["transformer", "t5", "bart"])
@pytest.mark.parametrize("target", ["right", "inside", "full"])
@pytest.mark.parametrize("source", ["right", "left", "full"])
def test_cross_attention_reads_the_memory_of_its_row(kind: str, source: str, target: str) -> None:
    model = jittered(QkvEncoderDecoderModel(tiny.encoder_decoder(kind))).eval()
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS.flip(0), "use_cache": False}
    masks = {"attention_mask": source, "decoder_attention_mask": target}
    inputs |= {name: PADDING[word] for name, word in masks.items() if word != "full"}
    rows = {1} if source != "full" and target != "full" else {3} if source == target else {1, 3}
    assert_equal(model, rows, **inputs)


@pytest.mark.parametrize("padding", PADDING)
def test_padding_comes_back_as_zeros(padding: str) -> None:
    model = built("encoder", remove_padding=True).eval()
    hidden = model(IDS, attention_mask=PADDING[padding]).last_hidden_state
    assert (hidden[PADDING[padding] == 0] == 0).all() and (hidden[PADDING[padding] == 1] != 0).any(-1).all()


@pytest.mark.parametrize(
    "given",
    [
        {"output_hidden_states": True},
        {"output_attentions": True},
        {"attention_mask": None},
        {"attention_mask": torch.ones(3, LENGTH)},
        {"attention_mask": torch.zeros(3, LENGTH)},
        {"attention_mask": torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool)},
    ],
    ids=["hidden states", "attentions", "no mask", "no padding", "nothing real", "finished mask"],
)
def test_padding_stays_where_layers_are_looked_at_or_nothing_is_gained(given: dict[str, Any]) -> None:
    model = built("encoder", remove_padding=True).eval()
    with rows_of_layers() as rows:
        outputs = model(**{"input_ids": IDS, "attention_mask": RIGHT, **given})
    assert set(rows) == {3} and all(state.shape[0] == 3 for state in outputs.hidden_states or ())


def test_padding_stays_with_a_cache_and_other_backends() -> None:
    model = built("decoder", remove_padding=True).eval()
    with rows_of_layers() as rows:
        model(IDS, attention_mask=RIGHT, use_cache=True)
        model.set_attn_implementation("eager")
        model(IDS, attention_mask=RIGHT, use_cache=False)
    assert set(rows) == {3}


def test_stochastic_depth_drops_branches_row_by_row() -> None:
    model = built("encoder", remove_padding=True, drop_path_rate=0.5)
    with rows_of_layers() as rows:
        model.train()(IDS, attention_mask=RIGHT)
        model.eval()(IDS, attention_mask=RIGHT)
    assert rows == [3, 3, 1, 1]


def test_a_bias_on_scores_needs_positions_that_count() -> None:
    model = built("encoder", remove_padding=True, position="alibi").eval()
    with rows_of_layers() as rows:
        model(IDS, attention_mask=RIGHT, position_ids=torch.arange(LENGTH)[None] * 2)
    assert set(rows) == {3}


@pytest.mark.parametrize(
    ("lengths", "shape", "faster"),
    [([60, 70], (2, 128), True), ([127, 128], (2, 128), False), ([3] * 64, (64, 4), False), ([4, 4], (1, 8), False)],
    ids=["half is padding", "one token is", "short rows", "short documents"],
)
def test_padding_is_removed_where_that_saves_more_than_it_costs(
    lengths: list[int], shape: tuple[int, int], *, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpadding, "CALL", 4.5e6)
    documents = unpadding.Documents(torch.arange(sum(lengths)), lengths, shape)
    assert unpadding.is_faster(encoder(hidden_size=252, num_attention_heads=3, head_dim=84), documents) is faster
