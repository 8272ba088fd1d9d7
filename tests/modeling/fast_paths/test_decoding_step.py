"""A step of generation in few operations: the numbers of the stack's own forward, and its forward where it is no step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel, StaticCache

import tiny
from qkv.configuration.axes import PatternName, PositionName
from qkv.modeling import (
    QkvDecoderForCausalLM,
    QkvDecoderModel,
    QkvEncoderDecoderForConditionalGeneration,
    QkvSpeechEncoderDecoderForSpeechSeq2Seq,
)
from qkv.modeling.execution import stand_ins as short_forwards
from qkv.modeling.fast_paths.stack_step import StackStep

pytestmark = pytest.mark.upstream

STEPS = 7
IDS = torch.randint(4, tiny.VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(0))
LEFT = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
RIGHT = LEFT.flip(1)


def decoder(kind: str = "gpt2", **fields: Any) -> PreTrainedModel:
    return QkvDecoderForCausalLM(tiny.decoder(kind, **fields)).eval()


@contextmanager
def steps_taken() -> Iterator[list[int]]:
    """The rows of every step that took the short way."""
    rows: list[int] = []
    run = StackStep.run

    def counted(self: StackStep, ids: Tensor, *given: Any) -> Tensor:
        rows.append(len(ids))
        return run(self, ids, *given)

    with mock.patch.object(StackStep, "run", counted):
        yield rows


def generated(model: PreTrainedModel, *, fast: bool, **inputs: Any) -> Any:
    model.lay_out_weights = fast
    wanted = {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": tiny.PAD, "eos_token_id": None}
    return model.generate(max_new_tokens=STEPS, do_sample=False, **{**wanted, **inputs})


def assert_plain(model: PreTrainedModel, *, steps: int = STEPS - 1, **inputs: Any) -> None:
    """Equal tokens and scores, all but the first from short steps."""
    plain = generated(model, fast=False, **inputs)
    with steps_taken() as rows:
        fast = generated(model, fast=True, **inputs)
    assert torch.equal(fast.sequences, plain.sequences) and len(rows) == steps
    assert_close(fast.logits, plain.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", list(tiny.KINDS["decoder"]))
@pytest.mark.parametrize("mask", [None, LEFT], ids=["no padding", "padding"])
def test_families(kind: str, mask: Tensor | None) -> None:
    assert_plain(decoder(kind), input_ids=IDS, attention_mask=mask)


AXES = [("position", word) for word in PositionName.__args__] + [("pattern", word) for word in PatternName.__args__]


@pytest.mark.parametrize("mask", [None, LEFT], ids=["no padding", "padding"])
@pytest.mark.parametrize(("axis", "word"), AXES)
def test_positions_and_patterns(axis: str, word: str, mask: Tensor | None) -> None:
    model = decoder(
        **{"sliding_window": 4, "block_size": 2, "fixed_columns": 1, "text_length": 3, "grid": [4, 5], axis: word}
    )
    assert_plain(model, input_ids=IDS, attention_mask=mask)


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}],
    ids=["best beam", "several beams"],
)
def test_beams(options: dict[str, Any]) -> None:
    assert_plain(decoder("llama"), input_ids=IDS, **options)


def test_tokens_that_are_looked_up_in_the_prompt() -> None:
    """Candidates of several tokens go the long way, which crops the cache where they are refused."""
    assert_plain(decoder("llama"), steps=5, input_ids=IDS[:1].repeat(1, 2), prompt_lookup_num_tokens=2)


def test_a_static_cache_goes_the_long_way() -> None:
    assert_plain(decoder("llama"), steps=0, input_ids=IDS, cache_implementation="static", disable_compile=True)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("mask", [None, RIGHT], ids=["no padding", "padding"])
@pytest.mark.parametrize("kind", list(tiny.KINDS["encoder_decoder"]))
def test_a_step_reads_memory(kind: str, mask: Tensor | None, beams: int) -> None:
    model = QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder(kind)).eval()
    assert_plain(model, input_ids=IDS, attention_mask=mask, num_beams=beams)


def test_a_step_reads_speech() -> None:
    model = QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder()).eval()
    assert_plain(model, **tiny.audio(batch=2), num_beams=2)


@pytest.mark.parametrize("asked", ["output_hidden_states", "output_attentions"])
def test_what_is_recorded_goes_the_long_way(asked: str) -> None:
    model = decoder()
    plain = generated(model, fast=False, input_ids=IDS, **{asked: True})
    with steps_taken() as rows:
        fast = generated(model, fast=True, input_ids=IDS, **{asked: True})
    assert not rows
    name = asked.removeprefix("output_")
    assert_close(getattr(fast, name), getattr(plain, name), rtol=1e-4, atol=1e-5)


def test_hooks_backends_and_training_go_the_long_way() -> None:
    model, seen = decoder(), []
    handle = model.model.layers[1].mlp.register_forward_hook(lambda *_: seen.append(1))
    assert_plain(model, input_ids=IDS)  # but for the layer with the hook
    assert len(seen) == 2 * STEPS
    handle.remove()
    model.set_attn_implementation("eager")
    assert_plain(model, steps=0, input_ids=IDS)
    model.set_attn_implementation("sdpa")
    assert_plain(model, input_ids=IDS)
    with steps_taken() as rows:
        generated(model.train(), fast=True, input_ids=IDS)
    assert not rows


def test_a_stack_with_a_forward_of_its_own_keeps_it() -> None:
    class Halved(QkvDecoderModel):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.last_hidden_state = output.last_hidden_state / 2
            return output

    model = decoder()
    model.model.__class__ = Halved
    assert_plain(model, steps=0, input_ids=IDS)


def test_other_calls_go_the_long_way() -> None:
    model = decoder()
    first = model(IDS, use_cache=True)
    with steps_taken() as rows, short_forwards(model):
        model(IDS[:, :1], past_key_values=first.past_key_values)  # with gradients
        with torch.no_grad():
            model(IDS[:, :1])
            model(IDS[:, :2], past_key_values=first.past_key_values)
            model(inputs_embeds=model.model.embed_tokens(IDS[:, :1]), past_key_values=first.past_key_values)
            model(IDS[:, :1], past_key_values=StaticCache(model.config, max_cache_len=9))
    assert not rows


def test_too_long_a_text_is_refused() -> None:
    model = decoder(max_position_embeddings=8)
    with pytest.raises(ValueError, match="sequence of 9 tokens exceeds max_position_embeddings=8"):
        generated(model, fast=True, input_ids=IDS)
