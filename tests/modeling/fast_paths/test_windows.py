"""Attention in windows computes what the dense mask gives, for every shape of chunks and padding, in linear memory.

`test_execution.py` does so for every position and pattern.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from comparison import assert_alike, decoder, encoder, exact, jittered, learned
from qkv.configuration.axes import BiasPositionName
from qkv.modeling.fast_paths import unpadding, windows
from qkv.modeling.modeling_decoder import QkvDecoderForCausalLM, QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderForSequenceClassification, QkvEncoderModel
from sampling import sampled

SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 128}
PATTERNS = {
    "sliding": {"pattern": "sliding", "sliding_window": 3},
    "a wide window": {"pattern": "sliding", "sliding_window": 11},
    "one token": {"pattern": "sliding", "sliding_window": 1},
    "block_sparse": {"pattern": "block_sparse", "block_size": 3},
    "dilated": {"pattern": "dilated", "sliding_window": 3, "dilation": 3},
    "random": {"pattern": "random", "block_size": 2, "num_random_blocks": 2},
    "uneven blocks": {"pattern": "random", "block_size": 3, "num_random_blocks": 1},
    "fixed": {"pattern": "fixed", "block_size": 4, "fixed_columns": 2},
    "global tokens": {"pattern": ["dilated", "random"], "sliding_window": 2, "block_size": 2, "num_global_tokens": 3},
    "row": {"pattern": "row", "grid_columns": 4, "text_length": 2},
    "no text": {"pattern": "row", "grid_columns": 4, "text_length": 0},
    "convolutional": {"pattern": "convolutional", "grid_columns": 5, "grid_kernel": 3, "text_length": 3},
    "mixed": {"pattern": ["sliding", "full"], "sliding_window": 3},
    "global projections": {"pattern": ["sliding", "dilated"], "sliding_window": 3, "num_global_tokens": 2},
}
PATTERNS["global projections"] |= {"global_projections": True}
DECODED = [name for name in PATTERNS if name != "global projections"]
STACKS = {"encoder": (encoder, QkvEncoderModel), "decoder": (decoder, QkvDecoderModel)}
RIGHT = torch.arange(23) < torch.tensor([[23], [9], [16], [0]])
PADDING = {
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "both": RIGHT & RIGHT.roll(3, 1),
    "empty chunks": (torch.arange(23) > 17).expand(4, -1),
}
MARKED = {
    "one": (torch.arange(23) == 11).expand(4, -1).long(),
    "others in each row": (torch.rand(4, 23, generator=torch.Generator().manual_seed(2)) < 0.2).long(),
    "all": torch.ones(4, 23, dtype=torch.long),
}


@contextmanager
def in_chunks() -> Iterator[list[windows.WindowMask]]:
    """Attend in windows however short a row is; the masks that were built."""
    built, make = [], windows.window_mask

    def watched(*given: Any) -> windows.WindowMask | None:
        if mask := make(*given):
            built.append(mask)
        return mask

    small = mock.patch.multiple(windows, QUERIES=8, SHARE=100.0, window_mask=watched)
    with small, mock.patch.object(unpadding, "window_mask", watched):
        yield built


@contextmanager
def dense() -> Iterator[None]:
    with mock.patch.object(windows, "SHARE", 0.0):
        yield


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(length))


def build(stack: str, pattern: str, *, removed: bool | None = None, **fields: Any) -> Any:
    make, model_class = STACKS[stack]
    model = jittered(model_class(make(**{**SIZES, "position": "rope", **PATTERNS[pattern], **fields})))
    model.remove_padding = removed
    return model


def assert_same(model: Any, padding: str | None = None, **inputs: Any) -> list[windows.WindowMask]:
    """Equal values and gradients; the masks of chunks."""
    real = None if padding is None else PADDING[padding]
    inputs |= {} if real is None else {"attention_mask": real.long()}
    with exact(), dense():
        expected = learned(model, real, **inputs)
    with exact(), in_chunks() as built:
        actual = learned(model, real, **inputs)
    assert len(actual) > 10
    assert_alike(actual, expected)
    return built


@pytest.mark.parametrize(
    ("stack", "pattern", "length"), sampled(itertools.product(STACKS, DECODED, [1, 7, 8, 9, 16, 29]), 7)
)
def test_lengths(stack: str, pattern: str, length: int) -> None:
    model = build(stack, pattern)
    built = assert_same(model, input_ids=ids(2, length))
    patterns = {word for word in model.config.layer_patterns if word != "full"}
    assert [mask.span.queries for mask in built] == [length] * len(patterns) * (length > 1)


WITH_MARKS = ["sliding", "dilated", "random", "fixed", "global tokens", "mixed", "global projections"]
MARKS = itertools.product(MARKED, WITH_MARKS, ["rope", "t5"], [None, *PADDING], [True, False])


@pytest.mark.parametrize(("marks", "pattern", "position", "padding", "removed"), sampled(MARKS, 17))
def test_marked_tokens(marks: str, pattern: str, position: str, padding: str | None, *, removed: bool) -> None:
    model = build("encoder", pattern, removed=removed, position="rope" if "projections" in pattern else position)
    assert assert_same(model, padding, input_ids=ids(4, 23), global_attention_mask=MARKED[marks])


@pytest.mark.parametrize("position", ["rope", "t5"])
@pytest.mark.parametrize("pattern", DECODED)
def test_packed_documents(pattern: str, position: str) -> None:
    positions = torch.cat((torch.arange(14), torch.arange(1), torch.arange(8)))[None]
    given = {"input_ids": ids(1, 23), "position_ids": positions, "use_cache": False}
    built = assert_same(build("decoder", pattern, removed=False, position=position), **given)
    assert built or "random" in PATTERNS[pattern]["pattern"]  # blocks are drawn for chunks of one document
    if position == "rope" and pattern == "sliding":
        apart = assert_same(build("decoder", pattern, removed=True), **given)
        assert [mask.span.queries for mask in apart] == [14, 8]


def test_chunks_or_the_dense_mask() -> None:
    model, between = build("encoder", "sliding", removed=False), torch.arange(20)[None] % 7 != 3
    with exact(), in_chunks() as built:
        model(ids(1, 20), attention_mask=torch.ones(1, 20))
        assert len(built) == 1
        model(ids(1, 20), attention_mask=between.long())  # padding between tokens
        weights = model(ids(1, 20), output_attentions=True).attentions
    assert len(built) == 1
    near = (torch.arange(20)[:, None] - torch.arange(20)).abs() < 3
    assert all(bool(((each != 0) == near).all()) for each in weights)


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize(("pattern", "position"), sampled(itertools.product(DECODED, ["rope", "t5"]), 5))
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
    assert_alike([torch.cat(parts, dim=1)[real]], [expected[real]])


@pytest.mark.parametrize("pattern", sampled(PATTERNS, 4))
def test_a_classifier_reads_its_token_alone(pattern: str) -> None:
    config = encoder(**SIZES, num_labels=3, **PATTERNS[pattern])
    model, real = jittered(QkvEncoderForSequenceClassification(config)).eval(), RIGHT[:2].long()
    model.remove_padding = True
    with torch.no_grad(), exact(), dense():
        expected = model(ids(2, 23), attention_mask=real).logits
    with torch.no_grad(), exact(), in_chunks() as built:
        assert_alike([model(ids(2, 23), attention_mask=real).logits], [expected])
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


LINEAR = itertools.product(
    ["sliding", "block_sparse", "global tokens"], ["rope", *get_args(BiasPositionName)], [1, 2], [0, 1]
)


@pytest.mark.parametrize(("pattern", "position", "rows", "past"), sampled(LINEAR, 13))
@pytest.mark.slow
def test_memory_is_linear_in_the_length(pattern: str, position: str, rows: int, past: int) -> None:
    """In rows of which one is padded, and after others that are cached."""
    sizes = {"max_position_embeddings": 8192, "hidden_size": 8, "intermediate_size": 8}
    model, largest = build("decoder", pattern, removed=False, position=position, **sizes), {}
    for length in (1024, 2048, 4096):
        given: dict[str, Any] = {"use_cache": False}
        if past:
            with torch.no_grad(), exact():
                given = {"past_key_values": model(ids(rows, length)).past_key_values}
        elif rows == 2:
            given["attention_mask"] = (torch.arange(length) >= torch.tensor([[0], [9]])).long()
        with exact(), Largest() as made:
            model(ids(rows, length), **given).last_hidden_state.sum().backward()
        largest[length] = made.numbers
    assert largest[4096] <= 2.1 * largest[2048] <= 4.3 * largest[1024]
    assert largest[4096] < rows * 4096**2 / 3


@pytest.mark.slow
def test_a_compiled_graph_attends_in_chunks_for_any_batch_and_length() -> None:
    model = build("decoder", "sliding", position="t5", num_hidden_layers=1)
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled: Any = torch.compile(model, backend=keep, fullgraph=True, dynamic=True)
    for batch, length in ((2, 29), (3, 33)):
        with exact(), dense():
            expected = learned(model, input_ids=ids(batch, length), use_cache=False)
        with exact(), mock.patch.multiple(windows, QUERIES=8, SHARE=100.0):
            assert_alike(learned(compiled, input_ids=ids(batch, length), use_cache=False), expected)
    (graph,) = graphs
    attention = [node for node in graph.graph.nodes if node.target is torch.nn.functional.scaled_dot_product_attention]
    assert {node.args[0].meta["example_value"].shape[-2] for node in attention} == {8}
