"""Attention in windows computes what the dense mask gives, for every pattern, length and family, in linear memory."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from comparison import EXACT, decoder, encoder, exact, jittered
from qkv.configuration.axes import BIAS_POSITIONS
from qkv.modeling.fast_paths import unpadding, window_attention, windows
from qkv.modeling.modeling_decoder import QkvDecoderForCausalLM, QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderForSequenceClassification, QkvEncoderModel
from sampling import sampled

SIZES = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 128,
}
PATTERNS = {
    "sliding": {"pattern": "sliding", "sliding_window": 3},
    "a wide window": {"pattern": "sliding", "sliding_window": 11},
    "one token": {"pattern": "sliding", "sliding_window": 1},
    "block_sparse": {"pattern": "block_sparse", "block_size": 3},
    "dilated": {"pattern": "dilated", "sliding_window": 3, "dilation": 3},
    "random": {"pattern": "random", "block_size": 2, "num_random_blocks": 2},
    "fixed": {"pattern": "fixed", "block_size": 4, "fixed_columns": 2},
    "global tokens": {"pattern": ["dilated", "random"], "sliding_window": 2, "block_size": 2, "num_global_tokens": 3},
    "row": {"pattern": "row", "grid_columns": 4, "text_length": 2},
    "no text": {"pattern": "row", "grid_columns": 4, "text_length": 0},
    "convolutional": {"pattern": "convolutional", "grid_columns": 5, "grid_kernel": 3, "text_length": 3},
    "mixed": {"pattern": ["sliding", "full"], "sliding_window": 3},
}
STACKS = {"encoder": (encoder, QkvEncoderModel), "decoder": (decoder, QkvDecoderModel)}


@contextmanager
def in_chunks(size: int = 8) -> Iterator[list[windows.WindowMask]]:
    """Attend in windows however short a row is; the masks that were built."""
    built = []
    make = windows.window_mask

    def watched(*given: Any) -> windows.WindowMask | None:
        if mask := make(*given):
            built.append(mask)
        return mask

    with (
        mock.patch.multiple(windows, QUERIES=size, SHARE=100.0),
        mock.patch.object(windows, "window_mask", watched),
        mock.patch.object(unpadding, "window_mask", watched),
    ):
        yield built


@contextmanager
def dense() -> Iterator[None]:
    with mock.patch.object(windows, "SHARE", 0.0):
        yield


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(length))


def run(model: Any, real: Tensor | None = None, **inputs: Any) -> list[Tensor]:
    """The last hidden state, and the gradients of a weighting of its real tokens."""
    model.zero_grad()
    hidden = model(**inputs).last_hidden_state
    hidden = hidden if real is None else hidden * real[..., None]
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return [hidden.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def assert_same(model: Any, **inputs: Any) -> list[windows.WindowMask]:
    with exact(), dense():
        expected = run(model, **inputs)
    with exact(), in_chunks() as built:
        actual = run(model, **inputs)
    assert len(actual) == len(expected) > 10
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)
    return built


def assert_close(one: Tensor, other: Tensor) -> None:
    assert (one - other).abs().max() <= 100 * EXACT * (1 + other.abs().max())


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 29])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("family", STACKS)
def test_values_and_gradients(family: str, pattern: str, length: int) -> None:
    make, model_class = STACKS[family]
    model = jittered(model_class(make(**SIZES, position="rope", **PATTERNS[pattern])))
    built = assert_same(model, input_ids=ids(2, length))
    patterns = {word for word in model.config.layer_patterns if word != "full"}
    assert [mask.span.queries for mask in built] == [length] * len(patterns) * (length > 1)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("family", STACKS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_documents_have_windows_of_their_own(side: str, family: str, pattern: str) -> None:
    make, model_class = STACKS[family]
    model = jittered(model_class(make(**SIZES, position="learned", **PATTERNS[pattern])))
    model.remove_padding = True
    real = torch.arange(23) < torch.tensor([[23], [9], [16]])
    real = real.flip(1) if side == "left" else real
    built = assert_same(model, input_ids=ids(3, 23), attention_mask=real.long(), real=real, use_cache=False)
    wide = pattern == "a wide window"
    assert wide or [mask.span.queries for mask in built] == [23, 9, 16] * len({*model.config.layer_patterns} - {"full"})


def test_documents_packed_in_a_row_do_too() -> None:
    model = jittered(QkvDecoderModel(decoder(**SIZES, position="rope", **PATTERNS["sliding"])))
    positions = torch.cat((torch.arange(14), torch.arange(9)))[None]
    built = assert_same(model, input_ids=ids(1, 23), position_ids=positions, use_cache=False)
    assert [mask.span.queries for mask in built] == [14, 9]


RIGHT = torch.arange(23) < torch.tensor([[23], [9], [16], [0]])
PADDING = {
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "both": RIGHT & RIGHT.roll(3, 1),
    "empty chunks": torch.arange(23) > 17,
}


@pytest.mark.parametrize("padding", [None, *PADDING])
@pytest.mark.parametrize("pattern", ["sliding", "block_sparse", "row", "convolutional", "global tokens", "fixed"])
@pytest.mark.parametrize("position", BIAS_POSITIONS)
@pytest.mark.parametrize("family", STACKS)
def test_a_bias_is_added_in_chunks(family: str, position: str, pattern: str, padding: str | None) -> None:
    make, model_class = STACKS[family]
    model = jittered(model_class(make(**SIZES, position=position, **PATTERNS[pattern])))
    model.remove_padding = False
    real = None if padding is None else PADDING[padding].expand(4, -1)
    mask = {} if real is None else {"attention_mask": real.long()}
    assert assert_same(model, input_ids=ids(4, 23), real=real, **mask)


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("family", STACKS)
def test_padding_that_stays(family: str, pattern: str, padding: str) -> None:
    make, model_class = STACKS[family]
    model = jittered(model_class(make(**SIZES, position="rope", **PATTERNS[pattern])))
    model.remove_padding = False
    real = PADDING[padding].expand(4, -1)
    assert assert_same(model, input_ids=ids(4, 23), attention_mask=real.long(), real=real)


def test_padding_between_tokens_keeps_the_dense_mask() -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, **PATTERNS["block_sparse"])))
    model.remove_padding = False
    real = torch.arange(23)[None] % 7 != 3
    assert not assert_same(model, input_ids=ids(1, 23), attention_mask=real.long(), real=real)


@pytest.mark.parametrize("position", ["rope", "t5"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_documents_in_a_row_whose_padding_stays(pattern: str, position: str) -> None:
    model = jittered(QkvDecoderModel(decoder(**SIZES, position=position, **PATTERNS[pattern])))
    model.remove_padding = False
    positions = torch.cat((torch.arange(14), torch.arange(1), torch.arange(8)))[None]
    # Blocks are drawn for chunks of one document.
    assert assert_same(model, input_ids=ids(1, 23), position_ids=positions, use_cache=False) or pattern == "random"


def test_the_bias_of_long_documents_is_not_that_of_all_pairs() -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, position="t5", **PATTERNS["sliding"])))
    model.remove_padding = True
    real = torch.arange(23) < torch.tensor([[23], [9]])
    assert assert_same(model, input_ids=ids(2, 23), attention_mask=real.long(), real=real)


MARKED = {
    "one": torch.arange(23) == 11,
    "others in each row": torch.rand(4, 23, generator=torch.Generator().manual_seed(2)) < 0.2,
    "all": torch.arange(23) >= 0,
}


PATTERNS_WITH_MARKS = ("sliding", "dilated", "random", "fixed", "global tokens", "mixed")
WAYS = itertools.product(MARKED, PATTERNS_WITH_MARKS, ("rope", "t5"), (None, *PADDING), (True, False))


@pytest.mark.parametrize(("marks", "pattern", "position", "padding", "removed"), sampled(WAYS, 7))
def test_marked_tokens(marks: str, pattern: str, position: str, padding: str | None, removed: bool) -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, position=position, **PATTERNS[pattern])))
    model.remove_padding = removed
    real = None if padding is None else PADDING[padding].expand(4, -1)
    mask = {} if real is None else {"attention_mask": real.long()}
    marked = MARKED[marks].expand(4, -1).long()
    assert assert_same(model, input_ids=ids(4, 23), real=real, global_attention_mask=marked, **mask)


OWN = {"pattern": ["sliding", "dilated"], "sliding_window": 3, "global_projections": True}
OWN_WAYS = itertools.product(MARKED, (0, 2), (None, *PADDING), (True, False))


@pytest.mark.parametrize(("marks", "first", "padding", "removed"), sampled(OWN_WAYS, 3))
def test_global_tokens_with_projections_of_their_own(
    marks: str, first: int, padding: str | None, removed: bool
) -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, position="rope", num_global_tokens=first, **OWN)))
    model.remove_padding = removed
    real = None if padding is None else PADDING[padding].expand(4, -1)
    mask = {} if real is None else {"attention_mask": real.long()}
    marked = MARKED[marks].expand(4, -1).long()
    assert assert_same(model, input_ids=ids(4, 23), real=real, global_attention_mask=marked, **mask)


@pytest.mark.parametrize("fields", [PATTERNS["sliding"], OWN], ids=["shared", "own projections"])
def test_documents_in_a_row_have_marked_tokens_of_their_own(fields: dict[str, Any]) -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, position="rope", **fields)))
    positions, marked = torch.cat((torch.arange(14), torch.arange(9)))[None], torch.arange(23)[None] % 7 == 2
    with exact():
        together = model(ids(1, 23), position_ids=positions, global_attention_mask=marked).last_hidden_state
        parts = zip(ids(1, 23).split((14, 9), 1), marked.split((14, 9), 1), strict=True)
        alone = [model(part, global_attention_mask=marks).last_hidden_state for part, marks in parts]
    assert_close(together, torch.cat(alone, dim=1))


def test_a_mask_of_ones_is_none() -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, **PATTERNS["sliding"])))
    assert assert_same(model, input_ids=ids(2, 20), attention_mask=torch.ones(2, 20))


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("position", ["rope", "t5"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_prompt_is_cached_and_read_on(pattern: str, position: str, side: str | None) -> None:
    model = jittered(QkvDecoderForCausalLM(decoder(**SIZES, position=position, **PATTERNS[pattern])))
    prompt, real = ids(2, 38), torch.arange(38) < torch.tensor([[38], [31]])
    real = real.flip(1) if side == "left" else real | (side is None)
    with torch.no_grad(), exact(), dense():
        expected = model(prompt, attention_mask=real.long()).logits
    with torch.no_grad(), exact(), in_chunks() as built:
        cache, parts = DynamicCache(config=model.config), []
        for start, end in ((0, 12), (12, 30), (30, 38)):
            mask = None if side is None else real[:, :end].long()
            parts.append(model(prompt[:, start:end], attention_mask=mask, past_key_values=cache).logits)
    spans = dict.fromkeys((mask.span.query, mask.span.queries) for mask in built)
    assert list(spans) == [(0, 12), (12, 18), (30, 8)]
    assert_close(torch.cat(parts, dim=1)[real], expected[real])


@pytest.mark.parametrize("pattern", ["sliding", "dilated", "fixed", "global tokens"])
def test_generated_tokens_are_the_same(pattern: str) -> None:
    model = jittered(QkvDecoderForCausalLM(decoder(**SIZES, position="rope", **PATTERNS[pattern]))).float()
    with dense():
        expected = model.generate(ids(2, 20), max_new_tokens=9, num_beams=2, do_sample=False)
    with in_chunks() as built:
        assert torch.equal(model.generate(ids(2, 20), max_new_tokens=9, num_beams=2, do_sample=False), expected)
    assert built


def test_weights_of_attention_are_those_of_the_dense_mask() -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, **PATTERNS["sliding"])))
    with exact(), in_chunks() as built:
        weights = model(ids(1, 20), output_attentions=True).attentions
    assert not built
    near = (torch.arange(20)[:, None] - torch.arange(20)).abs() < 3
    assert all(bool(((each != 0) == near).all()) for each in weights)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_classifier_reads_its_token_alone(pattern: str) -> None:
    model = jittered(QkvEncoderForSequenceClassification(encoder(**SIZES, num_labels=3, **PATTERNS[pattern])))
    model.remove_padding = True
    real = (torch.arange(23) < torch.tensor([[23], [9]])).long()
    with torch.no_grad(), exact(), dense():
        expected = model(ids(2, 23), attention_mask=real).logits
    with torch.no_grad(), exact(), in_chunks() as built:
        assert_close(model(ids(2, 23), attention_mask=real).logits, expected)
    assert built or pattern == "a wide window"


class Largest(TorchDispatchMode):
    """Note the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.numel())
        return made


@pytest.mark.parametrize("inputs", ["plain", "padded", "cached"])
@pytest.mark.parametrize("position", ["rope", *BIAS_POSITIONS])
@pytest.mark.parametrize("pattern", [PATTERNS[name] for name in ("sliding", "block_sparse", "global tokens")])
def test_nothing_is_as_large_as_all_pairs(pattern: dict[str, Any], position: str, inputs: str) -> None:
    sizes = {**SIZES, "max_position_embeddings": 4096, "hidden_size": 8, "intermediate_size": 8}
    model = jittered(QkvDecoderModel(decoder(**sizes, position=position, **pattern)))
    largest = {}
    for length in (1024, 2048, 4096):
        given: dict[str, Any] = {"use_cache": False}
        if inputs == "padded":
            model.remove_padding = False
            given["attention_mask"] = (torch.arange(length) >= torch.tensor([[0], [9]])).long()
        elif inputs == "cached":
            with torch.no_grad(), exact():
                given = {"past_key_values": model(ids(1, length)).past_key_values}
        with exact(), Largest() as made:
            model(ids(2 if inputs == "padded" else 1, length), **given).last_hidden_state.sum().backward()
        largest[length] = made.numbers
    assert largest[4096] <= 2.1 * largest[2048] <= 4.3 * largest[1024]
    assert largest[4096] < (2 if inputs == "padded" else 1) * 4096**2 / 3


COMPILED = [("decoder", "t5", "sliding"), pytest.param("encoder", "rope", "dilated", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("family", "position", "pattern"), COMPILED)
def test_a_compiled_graph_attends_in_chunks_for_any_batch_and_length(family: str, position: str, pattern: str) -> None:
    make, model_class = STACKS[family]
    sizes = {**SIZES, "num_hidden_layers": 1}
    model = jittered(model_class(make(**sizes, position=position, **PATTERNS[pattern])))
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled: Any = torch.compile(model, backend=keep, fullgraph=True, dynamic=True)
    options = {"use_cache": False} if family == "decoder" else {}
    for batch, length in ((2, 29), (3, 33)):
        with exact(), dense():
            expected = run(model, input_ids=ids(batch, length), **options)
        with exact(), mock.patch.multiple(windows, QUERIES=8, SHARE=100.0):
            actual = run(compiled, input_ids=ids(batch, length), **options)
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other)
    (graph,) = graphs
    attention = [node for node in graph.graph.nodes if node.target is torch.nn.functional.scaled_dot_product_attention]
    assert {node.args[0].meta["example_value"].shape[-2] for node in attention} == {8}


@pytest.mark.parametrize("rows", [1, 2, 0])
def test_rows_together_are_those_one_by_one(rows: int) -> None:
    """Biases may be those of rows, of all rows or of all chunks."""
    model = QkvDecoderModel(decoder(**SIZES, position="none", **PATTERNS["dilated"]))
    with torch.no_grad(), in_chunks() as built:
        model(ids(2, 29))
    (mask,) = built
    _, chunks, size, width = mask.chunks.shape
    draw = torch.Generator().manual_seed(0)
    heads = [torch.randn(2, 29, count, 2, generator=draw).transpose(1, 2) for count in (4, 2, 2)]
    scores = window_attention.Scores(1.0, 0.0, torch.randn(rows * chunks or 1, 4, size, width, generator=draw))
    expected = window_attention.attend_in_windows(tuple(heads), mask, scores)
    repeated = tuple(window_attention.repeat_heads(each, 4 // each.shape[1]).transpose(1, 2) for each in heads)
    actual = window_attention.attend_together(repeated, mask, scores)
    torch.testing.assert_close(actual, expected)
