"""Count the parameters of a model, and simulate an optimizer step as one of many devices, on fake tensors."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor, distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism
from transformers.initialization import no_tie_weights

from qkv.scripts.planning.collectives import Collective, CommunicationTracker
from qkv.scripts.planning.fake_tensors import data_independent
from qkv.scripts.planning.memory_tracker import MemoryTracker, local
from qkv.scripts.planning.planned_model import PlannedModel

Strategy = Literal["ddp", "fsdp2", "tp"]
Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Setup:
    """The setup of a step: `batch` examples at once on each of `world_size` devices.

    With tensor parallelism `split` devices share each layer, and the rest share the data as in FSDP2.
    """

    world_size: int
    strategy: Strategy
    batch: int
    precision: Precision
    checkpointing: bool = False
    split: int = 1
    accumulate: int = 1

    @property
    def data_parallel(self) -> int:
        """The number of devices with different data."""
        return self.world_size // self.split


@dataclass
class Step:
    """A step on one device: bytes by kind at the moment of peak memory, and its collectives."""

    memory: dict[str, int]
    communication: list[Collective]


def count_parameters(planned: PlannedModel) -> dict[str, int]:
    """Count all parameters, embedding tables, and trained parameters; tied ones once."""
    model = planned.without_weights()
    model.tie_weights()
    total = model.num_parameters()
    embedding = total - model.num_parameters(exclude_embeddings=True)
    return {"total": total, "embedding": embedding, "trained": model.num_parameters(only_trainable=True)}


def simulate(planned: PlannedModel, setup: Setup) -> Step:
    """Run a step of a training, when the optimizer has its state, as the first of the devices.

    Every token counts as real and as labelled: batches with padding, and losses of few tokens, take less.
    """
    with process_group(setup) as meshes, FakeTensorMode(), data_independent(), catch_warnings():
        # No operation in place follows.
        filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        # torch 2.9 has no other name for it.
        filterwarnings("ignore", message=".*torch.distributed.*deprecated", category=FutureWarning)
        model = distributed_model(planned, setup, meshes)
        optimizer = torch.optim.AdamW([{"params": [weight]} for weight in model.parameters()], fused=True)
        batch = planned.inputs(setup.batch)
        communication, memory = CommunicationTracker(), MemoryTracker()
        memory.label(model.parameters(), "weights")
        with memory, communication if setup.world_size > 1 else nullcontext():
            compute_gradients(model, batch, setup, memory, communication)
        # The state lives through every later step, in which a fused optimizer allocates nothing.
        optimizer.step()
        states = (value for state in optimizer.state.values() for value in state.values())
        peak = memory.peak | {"optimizer": sum(local(value).untyped_storage().nbytes() for value in states)}
        step = Step({kind: size for kind, size in peak.items() if size}, [*communication.collectives.values()])
        return with_buckets(step, model, setup) if setup.strategy == "ddp" and setup.world_size > 1 else step


def with_buckets(step: Step, model: nn.Module, setup: Setup) -> Step:
    """Add DDP's gradient buckets, in single precision, which are never freed."""
    size = 4 * sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    reduced = Collective("all-reduce", setup.world_size)
    reduced.add(size)
    return Step({**step.memory, "buckets": size}, [*step.communication, reduced])


def compute_gradients(
    model: nn.Module, batch: dict[str, Any], setup: Setup, memory: MemoryTracker, communication: CommunicationTracker
) -> None:
    """Compute the gradients of a step, in which one micro-batch stands for all before the last."""
    memory.label_gradients(model)
    memory.label((value for value in tree_leaves(batch) if isinstance(value, Tensor)), "activations")
    for times, last in ((setup.accumulate - 1, False), (1, True)):
        if times:
            communication.times = times
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last)
            memory.kind = "activations"
            with torch.autocast("cpu", torch.bfloat16) if setup.precision == "bf16" else nullcontext():
                loss = model(**batch).loss
            memory.kind = "temporary"
            loss.backward()
            del loss


def distributed_model(planned: PlannedModel, setup: Setup, meshes: dict[str, DeviceMesh]) -> nn.Module:
    """Build the model as one device holds it, with fake weights.

    It is built of meta tensors first: backbones of transformers compute numbers of their own, which fake ones forbid.
    """
    with unset_fake_temporarily(), no_tie_weights():
        model = planned.without_weights()
    model._apply(lambda weight: torch.empty(weight.shape, dtype=weight.dtype))
    if "tensor" in meshes:
        plan, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=setup.split))
        apply_tensor_parallelism(model, meshes["tensor"], plan)
    model.tie_weights()
    if setup.checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if "data" in meshes:
        apply_fsdp(model, meshes["data"], DTYPES[setup.precision])
    return model


def apply_fsdp(model: Any, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """Shard by FSDP2 as Accelerate does: each layer is a group, tied and other weights are another."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype, output_dtype=dtype)
    # The numbers of devices are real, parameters stay fake.
    with unset_fake_temporarily():
        for module in model.modules():
            if type(module).__name__ in model._no_split_modules:
                fully_shard(module, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)


@contextmanager
def process_group(setup: Setup) -> Iterator[dict[str, DeviceMesh]]:
    """Create a fake process group as its first process, and yield the meshes that share the model with it."""
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
