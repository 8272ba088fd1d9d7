"""The seam: every plan gives the numbers of the plain one, and the core works without any."""

import io
import itertools
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from typing import Any, get_args
from unittest import mock

import pytest
import torch
from torch import Tensor

from comparison import assert_alike, decoder, encoder, exact, jittered, learned
from qkv.configuration.axes import PatternName, PositionName
from qkv.modeling import execution
from qkv.modeling.execution import PLANS, stand_ins, way_of
from qkv.modeling.fast_paths import windows
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from sampling import sampled

LENGTH = 24
SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 32, "sliding_window": 3, "block_size": 2}
SIZES |= {"fixed_columns": 1, "text_length": 1, "grid_columns": 4, "grid_kernel": 3}
MODELS = {"encoder": (encoder, QkvEncoderModel), "decoder": (decoder, QkvDecoderModel)}
IDS = torch.randint(11, (3, LENGTH), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(LENGTH) < torch.tensor([[20], [5], [24]])).long()
MASKS = {
    "none": None,
    "ones": torch.ones_like(RIGHT),
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "inside": RIGHT & (torch.arange(LENGTH) % 7 != 3),
    "empty row": RIGHT * torch.tensor([[1], [0], [1]]),
}
CASES = itertools.product(MODELS, get_args(PositionName), get_args(PatternName), MASKS)


def built(stack: str, **fields: Any) -> Any:
    config, model_class = MODELS[stack]
    return jittered(model_class(config(**SIZES, **fields)))


def computed(model: Any, mask: Tensor | None, ways: list[Any]) -> tuple[list[str], list[Tensor]]:
    """The plans that were taken, and what is learned at real tokens."""
    taken, build = [], execution.plan_of

    def watched(stack: Any, inputs: Any) -> Any:
        plan = build(stack, inputs)
        taken.append(type(plan).__name__)
        return plan

    small = mock.patch.multiple(windows, QUERIES=4, SHARE=100.0)  # chunks of texts that are this short
    with exact(), small, mock.patch.object(execution, "PLANS", ways), mock.patch("qkv.modeling.stack.plan_of", watched):
        return taken, learned(model, mask, input_ids=IDS, attention_mask=mask, use_cache=False)


@pytest.mark.parametrize(("stack", "position", "pattern", "mask"), sampled(CASES, 31))
def test_each_plan_gives_the_numbers_of_the_plain_one(stack: str, position: str, pattern: str, mask: str) -> None:
    model = built(stack, position=position, pattern=pattern)
    model.remove_padding = True
    plain, expected = computed(model, MASKS[mask], [])
    assert plain == ["Plan"]
    for ways in ([way] for way in PLANS):
        assert_alike(computed(model, MASKS[mask], ways)[1], expected)


def test_padding_and_windows_have_plans() -> None:
    model = built("encoder", position="rope", pattern="sliding")
    model.remove_padding = True
    assert computed(model, RIGHT, [*PLANS])[0] == ["DocumentPlan"]
    assert computed(model, None, [*PLANS])[0] == ["WindowPlan"]


WITHOUT = """
import sys, types
sys.modules["qkv.modeling.fast_paths"] = types.ModuleType("qkv.modeling.fast_paths")
import torch
from qkv import QkvDecoderConfig, QkvDecoderForCausalLM
from qkv.modeling.execution import PLANS, STAND_INS
config = QkvDecoderConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=11, pattern="sliding",
                          sliding_window=3, eos_token_id=None)
torch.manual_seed(0)
model = QkvDecoderForCausalLM(config)
ids = torch.tensor([[3, 4, 5, 6, 7, 8]])
model(ids, labels=ids).loss.backward()
tokens = model.eval().generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
print(len(PLANS), len(STAND_INS), tokens.tolist(), any("fast_paths." in name for name in sys.modules))
"""


def test_the_core_builds_trains_and_generates_without_what_makes_it_fast() -> None:
    plain = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True).stdout
    assert plain.startswith("0 0 [[") and plain.endswith("False\n")
    with redirect_stdout(io.StringIO()) as fast:
        exec(WITHOUT.replace('sys.modules["qkv.modeling.fast_paths"] =', "unused ="), {})
    assert not fast.getvalue().startswith("0 0") and fast.getvalue().endswith("True\n")
    assert fast.getvalue().split("[[")[1].split("]]")[0] == plain.split("[[")[1].split("]]")[0]


def test_layers_that_are_recomputed_leave_caches_alone() -> None:
    model = built("decoder", position="rope").train()
    with exact():
        expected = learned(model, input_ids=IDS, use_cache=False)
        with pytest.raises(ValueError, match="use_reentrant"):
            model.activation_checkpointing_enable({"use_reentrant": True})
        model.activation_checkpointing_enable({"use_reentrant": False})
        assert_alike(learned(model, input_ids=IDS, use_cache=True), expected)


def test_modules_stand_in_for_others_in_one_thread_and_for_a_while() -> None:
    model = built("decoder").eval()
    layer, elsewhere = model.layers[0], []
    with stand_ins(model):
        assert way_of(layer) is not layer
        thread = threading.Thread(target=lambda: elsewhere.append(way_of(layer)))
        thread.start()
        thread.join()
    assert way_of(layer) is layer and elsewhere == [layer]
