"""A step on fake tensors takes the memory and sends the bytes of a real one; strategies share what they promise."""

import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves

from qkv.modeling.heads import language_modeling
from qkv.scripts.planning import collectives
from qkv.scripts.planning.collectives import Collective, CommunicationTracker
from qkv.scripts.planning.fake_tensors import fused_dropout
from qkv.scripts.planning.memory_tracker import MemoryTracker
from qkv.scripts.planning.planned_model import PlannedModel, find
from qkv.scripts.planning.simulate import DTYPES, Setup, apply_fsdp, compute_gradients, count_parameters, simulate
from qkv.scripts.training.accelerator import apply_tensor_parallel

WIDE = ["hidden_size=64", "num_hidden_layers=2", "num_attention_heads=4", "vocab_size=301"]
TEXT = [*WIDE, "max_position_embeddings=64"]
# The recipe's own backbone has convolutions that need more inside themselves on a CPU than they give.
BACKBONE = "{model_type: resnet, embedding_size: 8, hidden_sizes: [8, 12], depths: [1, 1]}"
SHORT = ["encoder={max_position_embeddings: 64}", "decoder={max_position_embeddings: 32}"]
SUBJECTS = {
    "gpt2": ["gpt2", *TEXT],
    "bert_base": ["bert_base", *TEXT],
    "t5_small": ["t5_small", *TEXT, "intermediate_size=128"],
    "vit_base_16": ["vit_base_16", *WIDE[:-1], "image_size=[32, 32]", "patch_size=8"],
    "whisper_tiny": ["whisper_tiny", *WIDE, "pad_token_id=0", "decoder_start_token_id=1", *SHORT],
    "speech": ["spoken-digits", "model.num_hidden_layers=1"],
    "ctc": ["spoken-digits", "architecture=QkvAudioEncoderForCTC", "model.ctc_zero_infinity=true"],
    "pairs": ["shapes-captions"],
    "objects": ["shapes-detect", f"model.encoder={{num_hidden_layers: 1, backbone_config: {BACKBONE}}}"],
    # torch's own counter of collectives knows no module that is called twice.
    "shapes": ["shapes-detect", "model.auxiliary_loss=false"],
    "recurrent": ["translate-recurrent", "text.length=12"],
}


class Whole(torch.Tensor):
    """Labels whose tokens are not gathered."""


@pytest.fixture(autouse=True)
def as_on_a_gpu(plain_paths: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute padding, the loss of all tokens without their logits, and dropout in one kernel, as a plan does."""
    loss = language_modeling.loss_without_logits

    def of_all(head: nn.Module, hidden: torch.Tensor, labels: torch.Tensor, **options: Any) -> torch.Tensor:
        return loss(head, hidden, labels.as_subclass(Whole) if type(labels) is torch.Tensor else labels, **options)

    monkeypatch.setattr(language_modeling, "loss_without_logits", of_all)
    monkeypatch.setattr(language_modeling, "is_on_host", lambda hidden: False)
    monkeypatch.setattr(functional, "dropout", fused_dropout)


def subject_of(name: str) -> PlannedModel:
    subject, *words = SUBJECTS[name]
    return find(subject, words, None)


def here(**fields: Any) -> Setup:
    return Setup(**{"world_size": 1, "strategy": "ddp", "batch": 4, "precision": "fp32", **fields})


def take_step(model: Any, optimizer: Any, batch: dict[str, Any], setup: Setup, communication: Any = None) -> None:
    """Take a step with numbers."""
    compute_gradients(model, batch, setup, MemoryTracker(), communication or CommunicationTracker())
    optimizer.step()
    optimizer.zero_grad()


def real(subject: PlannedModel, setup: Setup) -> tuple[Any, Any, dict[str, Any]]:
    """A model with numbers after its first step."""
    model = subject.build()
    if setup.checkpointing:
        # The state of the CPU's generator is in the memory of no device.
        model.activation_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = subject.inputs(setup.batch)
    take_step(model, optimizer, batch, setup)
    return model, optimizer, batch


@pytest.fixture
def pair() -> Iterator[None]:
    """A group of two, of which this is the first and the other never answers."""
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    distributed.destroy_process_group()


def allocated(action: Any) -> int:
    """Bytes that torch's allocator gives out at the most, beyond what it has given before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        action()
    now = peak = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


MEASURED = [("gpt2", False, 3), ("gpt2", True, 1), ("vit_base_16", False, 1)]
REST = [(name, on, 1) for name in SUBJECTS if name != "shapes" for on in (False, True) if (name, on, 1) not in MEASURED]


@pytest.mark.parametrize(
    ("name", "checkpointing", "accumulate"), [*MEASURED, *(pytest.param(*row, marks=pytest.mark.slow) for row in REST)]
)
def test_memory_is_what_the_allocator_gives_out(name: str, checkpointing: bool, accumulate: int) -> None:
    subject, setup = subject_of(name), here(checkpointing=checkpointing, accumulate=accumulate)
    memory = simulate(subject, setup).memory
    model, optimizer, batch = real(subject, setup)
    assert memory["weights"] == sum(weight.nbytes for weight in model.parameters())
    assert memory["optimizer"] == sum(value.nbytes for state in optimizer.state.values() for value in state.values())
    measured = allocated(lambda: take_step(model, optimizer, batch, setup))
    measured += sum(value.nbytes for value in tree_leaves(batch) if isinstance(value, torch.Tensor))
    predicted = sum(memory.values()) - memory["weights"] - memory["optimizer"]
    assert predicted == pytest.approx(measured, rel=0.01)


def sums(found: list[Collective]) -> dict[str, tuple[int, int]]:
    return {collective.kind: (collective.calls, collective.bytes) for collective in found}


def test_ddp_sends_what_the_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of one reduces as much as one of two, with itself."""
    monkeypatch.setattr(collectives, "get_process_group_ranks", lambda group: [0, 1])
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        subject = subject_of("gpt2")
        model, optimizer, batch = real(subject, here())
        wrapped = DistributedDataParallel(model)
        take_step(wrapped, optimizer, batch, here())
        with CommunicationTracker() as tracker:
            take_step(wrapped, optimizer, batch, here(), tracker)
    finally:
        distributed.destroy_process_group()
    (traced,) = tracker.collectives.values()
    alone, two = simulate(subject, here()), simulate(subject, here(world_size=2))
    weights = 4 * count_parameters(subject)["total"]
    assert two.communication == [Collective("all-reduce", 2, calls=1, bytes=weights, sent=weights)]
    assert (traced.kind, traced.devices, traced.bytes) == ("all-reduce", 2, weights)
    # Data-parallel devices hold everything, and buckets of gradients.
    assert two.memory == {**alone.memory, "buckets": weights} and alone.memory["weights"] == weights


@pytest.mark.slow
def test_pairs_of_all_devices_are_contrasted() -> None:
    subject = find("shapes-captions", [f"model.{part}_config.num_hidden_layers=1" for part in ("text", "vision")], None)
    few, many = (simulate(subject, here(world_size=world, batch=2)) for world in (4, 512))
    # Two vectors of 64 numbers for each of the 2 pairs of a device, and two scalars beside the gradients.
    gathered = 512 * 2 * 2 * 64 * 4
    sent: Counter[str] = Counter()
    for found in many.communication:
        sent[found.kind] += found.bytes
    assert sent == {"all-gather": gathered, "all-reduce": few.memory["weights"] + 2 * 4, "reduce-scatter": gathered}
    assert many.memory["activations"] > few.memory["activations"] + gathered


def test_fsdp2_gathers_layers_twice_and_the_rest_once_in_each_part_and_reduces_once() -> None:
    subject = subject_of("gpt2")
    found = simulate(subject, here(world_size=2, strategy="fsdp2", accumulate=3))
    model = subject.build()
    layers = sum(weight.nbytes for weight in model.model.layers.parameters())
    # Every parameter is cut along its first side, which two devices share evenly but for the tables' odd row.
    rest = sum(weight.nbytes for weight in model.parameters()) - layers + 4 * 64
    assert sums(found.communication) == {
        "all-gather": (3 * 5, 3 * (2 * layers + rest)),
        "reduce-scatter": (3, layers + rest),
    }
    assert found.memory["weights"] == (layers + rest) // 2 and found.memory["optimizer"] >= layers + rest
    assert found.memory["gathered"] >= rest


def sliced(model: Any, setup: Setup) -> Any:
    return apply_tensor_parallel(model, 2, 1).train()


def sharded(model: Any, setup: Setup) -> Any:
    apply_fsdp(model, init_device_mesh("cpu", (2,)), DTYPES[setup.precision])
    return model


def sent(model: Any, batch: dict[str, Any], setup: Setup) -> dict[str, tuple[int, int]]:
    """What a step with numbers sends, the second one; torch's own counter must have as many calls."""
    optimizer = torch.optim.AdamW([{"params": [weight]} for weight in model.parameters()], fused=True)
    take_step(model, optimizer, batch, setup)
    with CommDebugMode() as counts, CommunicationTracker() as tracker:
        take_step(model, optimizer, batch, setup, tracker)
    assert counts.get_total_counts() == sum(collective.calls for collective in tracker.collectives.values())
    return sums(list(tracker.collectives.values()))


@pytest.mark.costly(1)
@pytest.mark.parametrize(
    ("name", "strategy", "precision"),
    [
        ("bert_base", "fsdp2", "bf16"),
        ("gpt2", "tp", "fp32"),
        pytest.param("bert_base", "fsdp2", "fp32", marks=pytest.mark.slow),
        pytest.param("t5_small", "tp", "fp32", marks=pytest.mark.slow),
        pytest.param("speech", "tp", "fp32", marks=pytest.mark.slow),
        pytest.param("ctc", "fsdp2", "fp32", marks=pytest.mark.slow),
        pytest.param("shapes", "fsdp2", "bf16", marks=pytest.mark.slow),
        pytest.param("shapes", "tp", "fp32", marks=pytest.mark.slow),
    ],
)
def test_a_step_without_numbers_sends_what_it_sends_with_them(
    pair: None, name: str, strategy: Any, precision: str
) -> None:
    subject = subject_of(name)
    tensors = strategy == "tp"
    setup = here(world_size=2, strategy=strategy, precision=precision, split=2 if tensors else 1)
    model = (sliced if tensors else sharded)(subject.build(), setup)
    found = sent(model, subject.inputs(setup.batch), setup)
    distributed.destroy_process_group()
    assert sums(simulate(subject, setup).communication) == found
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())


def test_tensor_parallel_layers_sum_hidden_states_and_their_gradients() -> None:
    """Shoeybi et al. 2019, §3: two sums forward in a layer; backward one for each matrix that is cut by columns."""
    subject = subject_of("gpt2")
    found = simulate(subject, here(world_size=2, strategy="tp", split=2))
    hidden = 4 * 64 * 64 * 4
    # Beside them one for the embeddings, one for the gradient of the head's input, and the scores of all words.
    calls = 2 * (2 + 4) + 2
    assert sums(found.communication)["all-reduce"] == (calls, calls * hidden)
    assert found.memory["weights"] < 0.6 * simulate(subject, here()).memory["weights"]


@pytest.mark.slow
def test_tensor_and_data_parallel_share_everything() -> None:
    found = simulate(subject_of("gpt2"), here(world_size=16, strategy="tp", split=2))
    # Two devices share layers, and each has its own group for the data.
    assert {collective.devices for collective in found.communication} == {2, 8}
    assert found.memory["weights"] < 0.075 * simulate(subject_of("gpt2"), here()).memory["weights"]


def test_no_weights_are_allocated() -> None:
    wide = ["hidden_size=8192", "num_hidden_layers=2", "intermediate_size=28672", "num_attention_heads=64"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = simulate(find("llama_3_2_1b", wide, 2048), here(world_size=64, strategy="fsdp2"))
    assert 64 * found.memory["weights"] > 10e9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_windows_take_no_mask_of_all_pairs() -> None:
    """As in `fast_paths/varlen.py`, which keeps queries, keys, values and outputs alone."""
    fields = ["num_hidden_layers=2", "vocab_size=99", "hidden_size=64", "num_attention_heads=4", "attention_dropout=0"]
    windows = ["pattern=sliding", "sliding_window=16"]
    full, near = (simulate(find("gpt2", [*fields, *more], 512), here(precision="bf16")) for more in ([], windows))
    assert near.memory == pytest.approx(full.memory, rel=2e-3), "a mask would be 2 % more"
