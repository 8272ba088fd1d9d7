"""What does an optimizer step take? It is run on tensors that have a shape and no numbers, on one device of many."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, Literal
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor, distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism
from transformers.initialization import no_init_weights, no_tie_weights
from transformers.modeling_utils import local_torch_dtype

from qkv.scripts.planning.collectives import Collective, Traffic
from qkv.scripts.planning.fake_tensors import blind
from qkv.scripts.planning.memory import Ledger
from qkv.scripts.planning.subject import Subject

Strategy = Literal["ddp", "fsdp2", "tp", "zero2", "zero3"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
aten = torch.ops.aten


@dataclass(frozen=True)
class Setup:
    """How a step is taken: `batch` examples at once on each of `world_size` devices.

    With tensor parallelism `split` devices share each layer, and the rest share the data as in FSDP2. `fused` says
    whether kernels are those of GPUs.
    """

    world_size: int
    strategy: Strategy
    batch: int
    precision: Literal["fp32", "bf16"]
    fused: bool
    checkpointing: bool = False
    split: int = 1
    accumulate: int = 1

    @property
    def stored(self) -> torch.dtype:
        """The precision of weights: DeepSpeed keeps those of double length with the optimizer."""
        return DTYPES[self.precision] if self.strategy.startswith("zero") else torch.float32

    @property
    def ignored(self) -> tuple[str, ...]:
        """What DeepSpeed shares out, and no step on one device shows."""
        return ("weights", "gradients", "optimizer") if self.strategy.startswith("zero") else ()

    @property
    def data_parallel(self) -> int:
        """Devices with data of their own."""
        return self.world_size // self.split


@dataclass
class Step:
    """What a step takes on one device: bytes by use at the moment that most are in use, and what it sends."""

    memory: dict[str, int]
    traffic: list[Collective]


def attention_flops(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """Of the CPU's attention kernel, which torch's counter does not know: as of the GPU's."""
    return flop_counter.sdpa_flop_count(query, key, value)


def attention_backward_flops(gradient: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """The same of its gradient, which computes the scores again."""
    return flop_counter.sdpa_backward_flop_count(gradient, query, key, value)


def convolution_backward_flops(gradient: Any, inputs: Any, weight: Any, *args: Any, **kwargs: Any) -> int:
    """Of a convolution in groups too, whose channels torch's counter takes to see all others."""
    _, _, _, _, transposed, _, _, (wants_inputs, wants_weight, _) = args
    places = inputs if transposed else gradient
    return 2 * (wants_inputs + wants_weight) * places[0] * prod(places[2:]) * prod(weight)


FLOPS = {
    aten.convolution_backward: convolution_backward_flops,
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flops,
}


def flops(subject: Subject) -> tuple[int, int]:
    """Of one example: (forward, forward and backward), of every matrix product and attention, as the kernels do them.

    Causal attention counts in full, as is the custom (Chowdhery et al. 2022, appendix B,
    https://arxiv.org/abs/2204.02311), and its backward computes the scores once more.
    """
    with FakeTensorMode(), blind():
        model = bare(subject, fused=True)
        model.tie_weights()
        with FlopCounterMode(display=False, custom_mapping=FLOPS) as counter:
            loss = model(**subject.inputs(1)).loss
            forward = counter.get_total_flops()
            loss.backward()
        return forward, counter.get_total_flops()


def simulate(subject: Subject, setup: Setup) -> Step:
    """Run the second step of a training, when the optimizer has its state, on the first of the devices."""
    with processes(setup) as meshes, FakeTensorMode(), blind(), catch_warnings():
        # Of what no operation in place comes after.
        filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        # Of what torch 2.9 has no other name for.
        filterwarnings("ignore", message=".*torch.distributed.*deprecated", category=FutureWarning)
        model = build(subject, setup, meshes)
        optimizer = torch.optim.AdamW([{"params": [weight]} for weight in model.parameters()], fused=True)
        batch = tree_map_only(
            Tensor,
            lambda value: value.to(setup.stored) if value.is_floating_point() else value,
            subject.inputs(setup.batch),
        )
        traffic, ledger = Traffic(meshes["tensor"].get_group() if "tensor" in meshes else None), Ledger(setup.ignored)
        take(model, optimizer, batch, setup, Ledger(), traffic)
        ledger.note(model.parameters(), "weights")
        ledger.note((value for state in optimizer.state.values() for value in state.values()), "optimizer")
        with ledger, traffic:
            take(model, optimizer, batch, setup, ledger, traffic)
        return Step({kind: size for kind, size in ledger.peak.items() if size}, list(traffic.found.values()))


def take(
    model: nn.Module, optimizer: Any, batch: dict[str, Any], setup: Setup, ledger: Ledger, traffic: Traffic
) -> None:
    """One step; of its parts all before the last are alike, and one stands for them."""
    hooks = ledger.watch(model)
    ledger.note((value for value in tree_leaves(batch) if isinstance(value, Tensor)), "activations")
    for times, last in ((setup.accumulate - 1, False), (1, True)):
        if times:
            traffic.times = times
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last)
            learn(model, batch, setup, ledger)
    optimizer.step()
    optimizer.zero_grad()
    for hook in hooks:
        hook.remove()


def learn(model: nn.Module, batch: dict[str, Any], setup: Setup, ledger: Ledger) -> None:
    """Forward and backward of one part."""
    mixed = setup.precision == "bf16" and not setup.strategy.startswith("zero")
    ledger.kind = "activations"
    with torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
        loss = model(**batch).loss
    ledger.kind = "temporary"
    loss.backward()


def bare(subject: Subject, *, fused: bool) -> Any:
    """The model with weights that have no numbers and are not tied yet.

    It is made of meta tensors first: backbones of transformers work out numbers of their own, and beside these they do.
    """
    with unset_fake_temporarily(), torch.device("meta"), no_init_weights(), no_tie_weights():
        model = subject.build(fused=fused)
    return model._apply(lambda weight: torch.empty(weight.shape, dtype=weight.dtype))


def build(subject: Subject, setup: Setup, meshes: dict[str, DeviceMesh]) -> nn.Module:
    """The model as one device holds it."""
    with local_torch_dtype(setup.stored):
        model = bare(subject, fused=setup.fused)
    if "tensor" in meshes:
        plan, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=setup.split))
        apply_tensor_parallelism(model, meshes["tensor"], plan)
    model.tie_weights()
    if setup.checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if "data" in meshes:
        shard(model, meshes["data"], DTYPES[setup.precision])
    return model


def shard(model: Any, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """FSDP2 as Accelerate sets it up: each layer is gathered by itself, what is tied and the rest once."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype, output_dtype=dtype)
    # Numbers of devices are numbers, and parameters stay without them.
    with unset_fake_temporarily():
        for module in model.modules():
            if type(module).__name__ in model._no_split_modules:
                fully_shard(module, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)


@contextmanager
def processes(setup: Setup) -> Iterator[dict[str, DeviceMesh]]:
    """The groups that share the model with one device, of a process group of which there is only the first."""
    if setup.world_size == 1:
        yield {}
        return
    distributed.init_process_group("fake", rank=0, world_size=setup.world_size, store=FakeStore())
    try:
        sizes = {"data": setup.data_parallel, "tensor": setup.split} if setup.strategy in ("fsdp2", "tp") else {}
        mesh: Any = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)) if sizes else {}
        yield {name: mesh[name] for name, size in sizes.items() if size > 1}
    finally:
        distributed.destroy_process_group()
