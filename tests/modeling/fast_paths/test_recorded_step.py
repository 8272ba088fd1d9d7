"""Recorded steps of generation: all but the graph, for which a stand-in computes the step again."""

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock
from weakref import WeakSet

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import DynamicCache

import tiny
from qkv.modeling import QkvDecoderForCausalLM
from qkv.modeling.fast_paths import recorded_step
from qkv.modeling.fast_paths.recorded_step import MOST, OneToken, Recording
from qkv.modeling.kernels.growing_cache import make_room

pytestmark = pytest.mark.upstream

STEPS = 12
IDS = torch.randint(4, tiny.VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(0))
LEFT = (torch.arange(6) >= torch.tensor([[0], [2], [5]])).long()


def record(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Compute a step again, into the tensor of the first, as a graph does, after a trial and without a result."""
    output = torch.full_like(step(), torch.nan)
    return lambda: output.copy_(step())


@pytest.fixture(autouse=True)
def replays() -> Iterator[list[int]]:
    """The rows of each step that was repeated."""
    rows, step = [], Recording.step

    def watched(self: Recording, cache: Any, token: OneToken) -> Tensor:
        rows.append(len(token.ids))
        return step(self, cache, token)

    with mock.patch.dict(recorded_step.RECORDERS, cpu=record), mock.patch.object(Recording, "step", watched):
        yield rows


@pytest.fixture(autouse=True)
def recordings() -> Iterator[WeakSet[Recording]]:
    """The recordings that are in use."""
    made, begin = WeakSet[Recording](), Recording.__init__

    def watched(self: Recording, *given: Any) -> None:
        begin(self, *given)
        made.add(self)

    with mock.patch.object(Recording, "__init__", watched):
        yield made


def build(**fields: Any) -> Any:
    return tiny.jitter(QkvDecoderForCausalLM(tiny.decoder("gpt2", **fields))).eval()


def with_room(model: Any) -> DynamicCache:
    """Make a cache as `generate` does."""
    cache = DynamicCache(config=model.config)
    make_room(cache, 1)
    return cache


def generated(model: Any, *, fast: bool = True, steps: int = STEPS, **inputs: Any) -> Any:
    model.lay_out_weights = fast
    wanted = {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": tiny.PAD, "eos_token_id": None}
    return model.generate(max_new_tokens=steps, do_sample=False, **{**wanted, "input_ids": IDS, **inputs})


def assert_plain(model: Any, **inputs: Any) -> Any:
    plain, fast = generated(model, fast=False, **inputs), generated(model, **inputs)
    assert torch.equal(fast.sequences, plain.sequences)
    assert_close(fast.logits, plain.logits, rtol=1e-4, atol=1e-5)
    return fast


@pytest.mark.parametrize("room", [4, 256])
@pytest.mark.parametrize("mask", [None, LEFT], ids=["whole", "padded"])
@pytest.mark.parametrize("position", ["learned", "rope", "alibi", "t5", "none"])
def test_tokens_and_scores(
    replays: list[int], position: str, mask: Tensor | None, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_step, "TOKENS", room)
    monkeypatch.setattr(recorded_step, "PATIENCE", 2)
    assert_plain(build(position=position), attention_mask=mask)
    lengths = range(IDS.shape[1] + 1, IDS.shape[1] + STEPS - 1)
    assert replays == [3 for length in lengths if length % room]  # none at the first step of each room


@pytest.mark.parametrize(
    "how", [{"num_beams": 2}, {"num_beams": 3, "num_return_sequences": 2}, {"prompt_lookup_num_tokens": 2}], ids=str
)
def test_caches_that_are_reordered_or_cropped(how: dict[str, Any]) -> None:
    rows = 1 if "prompt_lookup_num_tokens" in how else 3
    assert_plain(build(position="rope"), input_ids=IDS[:rows], **how)


def test_caches_in_turn_have_recordings_of_which_few_are_kept(recordings: WeakSet[Recording]) -> None:
    model = build(position="rope")
    caches = [with_room(model) for _ in range(MOST + 1)]
    with torch.no_grad(), model.laid_out():
        for step in range(6 * len(caches)):
            row = step % len(caches)
            place = {"past_key_values": caches[row], "use_cache": True}
            logits = model(IDS[row : row + 1, step // len(caches)][None], **place).logits
            assert len(recordings) <= MOST
        assert len(recordings) == MOST
    assert_close(logits[:, -1], model(IDS[row : row + 1]).logits[:, -1], rtol=1e-4, atol=1e-5)
    gc.collect()
    assert not recordings


def test_a_cache_outlives_its_recording_and_goes_on(recordings: WeakSet[Recording]) -> None:
    model = build(position="rope")
    first = assert_plain(model)
    gc.collect()
    assert not recordings
    again = {"input_ids": first.sequences, "past_key_values": first.past_key_values}
    plain = generated(model, fast=False, input_ids=first.sequences)
    assert torch.equal(generated(model, **again).sequences, plain.sequences)


def test_a_changed_computation_is_recorded_anew() -> None:
    model = build(position="rope")
    assert_plain(model)
    for norm in (each for each in model.modules() if hasattr(each, "eps")):
        norm.eps = 0.5  # weights stay where they are
    assert_plain(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert_plain(model)
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    assert_plain(model)


@pytest.mark.parametrize(
    "fields", [{"pattern": "sliding", "sliding_window": 4}, {"kernel": "linear", "attention_dropout": 0}], ids=str
)
def test_caches_of_other_kinds_are_computed(replays: list[int], fields: dict[str, Any]) -> None:
    model = build(**fields)
    assert_plain(model)
    generated(model, cache_implementation="static")
    with torch.autocast("cpu", torch.bfloat16):
        generated(build())
    assert not replays


def test_large_caches_are_computed(replays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    cache = generated(model, return_dict_in_generate=True).past_key_values
    calls, size = len(replays), sum(layer.keys[:, :, :1].nbytes * 2 * 256 for layer in cache.layers)
    for largest, steps in ((size - 1, 0), (size, STEPS - recorded_step.PATIENCE)):
        monkeypatch.setattr(recorded_step, "LARGEST", largest)
        generated(model)
        assert len(replays) - calls == steps


def test_masks_and_positions_are_checked(replays: list[int]) -> None:
    model = build()
    cache = with_room(model)
    with torch.no_grad(), model.laid_out():
        for _ in range(6):
            model(IDS[:, :1], past_key_values=cache, use_cache=True)
        assert replays
        for wrong in ({"attention_mask": torch.ones(3, 3)}, {"position_ids": torch.zeros(2, 1).long()}):
            with pytest.raises(ValueError, match="shape"):
                model(IDS[:, :1], past_key_values=cache, use_cache=True, **wrong)
