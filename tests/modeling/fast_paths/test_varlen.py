"""Padding removal and windows on a GPU: all but the kernel, for which a stand-in loops over documents."""

import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import tiny
from comparison import assert_alike, decoder, encoder, exact, jittered, learned
from qkv.modeling import execution
from qkv.modeling.fast_paths import varlen
from qkv.modeling.fast_paths.varlen import VarlenKernel, VarlenPlan
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from qkv.modeling.modeling_encoder_decoder import QkvEncoderDecoderModel
from sampling import sampled
from varlen_stand_in import varlen_attn

LENGTH = 12
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3}
IDS = torch.randint(11, (3, LENGTH), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(LENGTH) < torch.tensor([[9], [1], [12]])).long()
MASKS = {
    "none": None,
    "ones": torch.ones_like(RIGHT),
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "inside": RIGHT & (torch.arange(LENGTH) % 5 != 3),
    "empty row": RIGHT * torch.tensor([[1], [0], [1]]),
}
STACKS = {"encoder": (encoder, QkvEncoderModel, {}), "decoder": (decoder, QkvDecoderModel, {"use_cache": False})}
POSITIONS = ("learned", "rope", "xpos", "sinusoidal", "none")
PATTERNS = ("full", "sliding", ("full", "sliding"))
# Documents of 3, 9; 12; 2, 3, 7 tokens.
PLACES = torch.tensor([[*range(3), *range(9)], [*range(12)], [*range(2), *range(3), *range(7)]])


@pytest.fixture(autouse=True)
def kernel() -> Iterator[mock.Mock]:
    attend = mock.Mock(wraps=varlen_attn)
    dtypes = (torch.float64, torch.float32, torch.bfloat16)
    with mock.patch.dict(varlen.VARLEN_KERNELS, cpu=VarlenKernel(attend, dtypes, work=0)):
        yield attend


def built(stack: str, **fields: Any) -> Any:
    config, model_class, _ = STACKS[stack]
    return jittered(model_class(config(**{**SIZES, **fields})))


def computed(model: Any, way: Any, real: Tensor | None = None, **inputs: Any) -> list[Tensor]:
    with exact(), mock.patch.object(execution, "PLANS", [way] if way else []):
        return learned(model, real, **inputs)


def assert_equal(model: Any, real: Tensor | None = None, **inputs: Any) -> None:
    assert_alike(computed(model, VarlenPlan, real, **inputs), computed(model, None, real, **inputs))


@pytest.mark.parametrize(
    ("stack", "position", "pattern", "mask"), sampled(itertools.product(STACKS, POSITIONS, PATTERNS, MASKS), 7)
)
def test_values_and_gradients_are_those_of_padded_batches(
    kernel: mock.Mock, stack: str, position: str, pattern: Any, mask: str
) -> None:
    model, real = (
        built(stack, position=position, pattern=pattern if isinstance(pattern, str) else [*pattern]),
        MASKS[mask],
    )
    assert_equal(model, real, input_ids=IDS, attention_mask=real, **STACKS[stack][2])
    assert kernel.called == ("sliding" in pattern or mask not in ("none", "ones"))


@pytest.mark.parametrize("mask", [None, RIGHT])
@pytest.mark.parametrize("pattern", ["full", "sliding"])
@pytest.mark.parametrize("stack", STACKS)
def test_packed_documents_attend_to_themselves(
    kernel: mock.Mock, stack: str, pattern: str, mask: Tensor | None
) -> None:
    model = built(stack, position="rope", pattern=pattern)
    given = {"input_ids": IDS, "attention_mask": mask, **STACKS[stack][2]}
    assert_equal(model, mask, position_ids=PLACES, **given)
    ends = kernel.call_args.args[3].tolist()
    assert ends == ([0, 3, 12, 24, 26, 29, 36] if mask is None else [0, 3, 9, 10, 12, 15, 22])


def test_boundaries_of_documents_are_read_on_the_device(kernel: mock.Mock) -> None:
    model, row = built("decoder", position="rope"), IDS.view(1, -1)
    ends = torch.tensor([0, 5, 6, 20, 36])
    assert_equal(model, input_ids=row, cu_seq_lens_q=ends, cu_seq_lens_k=ends, use_cache=False)
    assert kernel.call_args.args[3].tolist() == ends.tolist()
    ends = torch.tensor([0, 5, 6, LENGTH])
    assert_equal(model, input_ids=IDS, cu_seq_lens_q=ends, cu_seq_lens_k=ends, use_cache=False)
    assert kernel.call_args.args[3].tolist() == [0, 5, 6, 12, 17, 18, 24, 29, 30, 36]


CROSSED = [
    *itertools.product(
        ["none", "right", "left", "empty row"], ["none", "right", "inside", "empty row"], ["transformer", "bart"]
    )
]


@pytest.mark.parametrize(("source", "target", "kind"), CROSSED)
def test_memory_is_packed_too(source: str, target: str, kind: str) -> None:
    model = jittered(QkvEncoderDecoderModel(tiny.encoder_decoder(kind, num_attention_heads=2, head_dim=8))).eval()
    masks = {"attention_mask": MASKS[source], "decoder_attention_mask": MASKS[target]}
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS.flip(0), "use_cache": False}
    assert_equal(model, MASKS[target], **inputs, **masks)


WITH_LOSS = [case for case in tiny.HEADS if case.inputs().keys() & {"labels", "start_positions", "return_loss"}]


@pytest.mark.parametrize("case", WITH_LOSS, ids=lambda case: case.name)
def test_every_head_of_every_family(case: tiny.Case) -> None:
    sizes = {} if case.name.startswith(("Detection", "Dual", "Pair", "Folding", "Recurrent")) else {"head_dim": 8}
    model, inputs = case.build(**sizes).double(), case.inputs()
    floats = {name: each for name, each in inputs.items() if isinstance(each, Tensor) and each.is_floating_point()}
    inputs |= {name: each.double() for name, each in floats.items()}
    found = []
    for ways in ([VarlenPlan], []):
        model.zero_grad()
        with exact(), mock.patch.object(execution, "PLANS", ways):
            loss = model(**inputs).loss
        loss.backward()
        found.append([loss.detach(), *(each.grad for each in model.parameters() if each.grad is not None)])
    assert_alike(*found)


@pytest.mark.parametrize("stack", STACKS)
def test_layers_that_are_recomputed(stack: str) -> None:
    model = built(stack, position="rope").train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert_equal(model, RIGHT, input_ids=IDS, attention_mask=RIGHT, use_cache=False)


STAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "hidden states": ("encoder", {}, {"output_hidden_states": True}),
    "attentions": ("encoder", {}, {"output_attentions": True}),
    "no padding": ("encoder", {}, {"attention_mask": torch.ones(3, LENGTH)}),
    "nothing real": ("encoder", {}, {"attention_mask": torch.zeros(3, LENGTH)}),
    "mask of pairs": ("encoder", {}, {"attention_mask": torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool)}),
    "score bias": ("encoder", {"position": "alibi"}, {}),
    "other pattern": ("encoder", {"pattern": "block_sparse", "block_size": 2}, {}),
    "global tokens": ("encoder", {"pattern": "sliding", "num_global_tokens": 1}, {}),
    "marked tokens": ("encoder", {}, {"global_attention_mask": RIGHT.flip(1)}),
    "state": ("decoder", {"kernel": "linear"}, {"use_cache": False}),
    "cache": ("decoder", {}, {"use_cache": True}),
    "eager": ("decoder", {"attn_implementation": "eager"}, {"use_cache": False}),
    "odd heads": ("encoder", {"head_dim": 4}, {}),
    "dropped weights": ("encoder", {"attention_dropout": 0.1}, {}),
    "dropped branches": ("encoder", {"drop_path_rate": 0.1}, {}),
}


@pytest.mark.parametrize(("stack", "fields", "given"), STAYS.values(), ids=STAYS)
def test_padding_stays_where_the_kernel_lacks_a_part(
    kernel: mock.Mock, stack: str, fields: dict[str, Any], given: dict[str, Any]
) -> None:
    model = built(stack, **fields).train()
    with exact():
        model(**{"input_ids": IDS, "attention_mask": RIGHT, **given})
    assert not kernel.called
    if fields.keys() & {"attention_dropout", "drop_path_rate"}:
        assert_equal(model.eval(), RIGHT, input_ids=IDS, attention_mask=RIGHT)
        assert kernel.called


def test_hidden_dropout_and_half_precision_are_open(kernel: mock.Mock) -> None:
    model = built("encoder", residual_dropout=0.5).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS, attention_mask=RIGHT).last_hidden_state.sum().backward()
    assert kernel.call_args.args[0].dtype == torch.bfloat16
    assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize("work", [0, 2 * 3 * LENGTH * 6, 2 * 3 * LENGTH * 6 + 1])
def test_small_batches_stay_padded(kernel: mock.Mock, work: float) -> None:
    model = built("encoder")
    with mock.patch.dict(varlen.VARLEN_KERNELS, cpu=varlen.VARLEN_KERNELS["cpu"]._replace(work=work)):
        model(IDS, attention_mask=RIGHT)
        assert kernel.called == (work <= 2 * 3 * LENGTH * 6)
        model.remove_padding = True
        model(IDS, attention_mask=RIGHT)
        assert kernel.called
        model.remove_padding, calls = False, kernel.call_count
        model(IDS, attention_mask=RIGHT)
    assert kernel.call_count == calls


def test_marks_that_hide_nothing_are_dropped() -> None:
    seen = []
    with mock.patch("qkv.modeling.stack.plan_of", lambda *given: seen.append(execution.plan_of(*given)) or seen[-1]):
        built("encoder").float()(IDS, attention_mask=torch.ones_like(IDS))
    assert [(type(plan), plan.masks.masks) for plan in seen] == [(execution.Plan, {"full": None})]


def doubled(*args: Any, **options: Any) -> Tensor:
    """Give other numbers than the plain path, so that one sees which was taken."""
    return 2 * varlen_attn(*args, **options)


@pytest.mark.parametrize("given", sampled(["windows", "boundaries"], 2))
def test_compiled_graphs_take_the_kernel(given: str) -> None:
    model = built("decoder", position="rope", pattern="sliding" if given == "windows" else "full")
    ends = {"cu_seq_lens_q": torch.tensor([0, 5, 6, 20, 36])} if given == "boundaries" else {}
    row = {"input_ids": IDS.view(1, -1), "use_cache": False, **ends}
    kernel = varlen.VARLEN_KERNELS["cpu"]._replace(attend=doubled)
    with exact(), torch.no_grad(), mock.patch.dict(varlen.VARLEN_KERNELS, cpu=kernel):
        expected = model(**row).last_hidden_state
        actual = torch.compile(model, backend="eager")(**row).last_hidden_state
    assert_alike([actual], [expected])
