"""How do several processes share a training? What the launcher or the recipe says, made into an Accelerator.

Each process has a whole model (DDP), a piece of every layer that is put together when it is needed (FSDP2, ZeRO), or
its own heads and inner units of every layer (tensor parallel). In the first two every process sees other data; those of
a tensor-parallel group see the same.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, ParallelismConfig, set_seed
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.distributed import DistributedConfig

from qkv.configuration.configuration_base import QkvConfig
from qkv.configuration.configuration_stack import StackConfig
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training import deepspeed as zero

PRECISIONS = {"fp32": "no", "bf16": "bf16"}
# What `accelerate launch --config_file` leaves in the environment, and what it means.
ASKED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "parallelism config",
}
Model = TypeVar("Model", bound=nn.Module)


def accelerate(recipe: Recipe) -> Accelerator:
    """What knows devices and processes.

    ValueError when recipe and launcher disagree, or for a number of processes or a tracker that cannot be had.
    """
    # Told that there is only the CPU, or several processes would each train alone.
    cpu = not torch.accelerator.is_available()
    refuse_two_words(recipe)
    refuse_missing_tracker(recipe.tracker)
    if asked("ACCELERATE_USE_DEEPSPEED"):
        zero.refuse_missing()
    sharding = full_sharding(recipe)
    accelerator = Accelerator(
        cpu=cpu,
        mixed_precision=PRECISIONS[recipe.precision],
        dynamo_backend="inductor" if recipe.compile else "no",
        log_with=recipe.tracker,
        # Trackers write to the run folder, which is opened later.
        project_dir="runs",
        fsdp_plugin=sharding,
    )
    refuse_slices_of_launcher(accelerator.parallelism_config)
    if sharding is not None and accelerator.distributed_type == DistributedType.MULTI_CPU:
        shard_on_cpu(accelerator, sharding)
    if recipe.tensor_parallel > 1:
        accelerator.state.parallelism_config = slicing(recipe.tensor_parallel, accelerator.num_processes)
    if cpu and asked("ACCELERATE_USE_DEEPSPEED"):
        zero.share_on_cpu(accelerator)
    if zero.is_zero(accelerator):
        zero.settle(accelerator, recipe)
    return accelerator


def refuse_slices_of_launcher(found: ParallelismConfig | None) -> None:
    """Raise ValueError where the launcher's config file lets several processes see the same data."""
    if found is not None and found.non_data_parallel_size > 1:
        raise ValueError(
            "the launcher's parallelism config has tensor, context or sequence parallelism; leave it out, and say "
            "tensor_parallel=2 in the recipe"
        )


def refuse_missing_tracker(name: str | None) -> None:
    """Raise ValueError for a tracker that is not installed."""
    trackers = [str(getattr(tracker, "value", tracker)) for tracker in get_available_trackers()]
    if name and name not in trackers:
        raise ValueError(f"tracker={name!r} is not installed; here are {', '.join(trackers) or 'none'}")


def refuse_two_words(recipe: Recipe) -> None:
    """Raise ValueError where two strategies are named, in the recipe or by the launcher's config file."""
    words = [f"tensor_parallel={recipe.tensor_parallel}"] if recipe.tensor_parallel > 1 else []
    words += [f"strategy={recipe.strategy}"] if recipe.strategy != "auto" else []
    others = [f"the launcher's {name}" for variable, name in ASKED.items() if asked(variable)]
    if words and len(words + others) > 1:
        raise ValueError(f"{' and '.join((words + others)[:2])} are two ways to share a training; leave one out")


def asked(variable: str) -> bool:
    """Whether `accelerate launch` was told to do something by its words or its config file."""
    return os.environ.get(variable, "").lower() == "true"


def full_sharding(recipe: Recipe) -> FullyShardedDataParallelPlugin | None:
    """FSDP2 as `scripts/accelerate/fsdp2.yaml` describes it, or as the launcher's own file does; None without it."""
    if recipe.strategy == "fsdp2":
        sharding = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=True
        )
    elif asked("ACCELERATE_USE_FSDP"):
        sharding = FullyShardedDataParallelPlugin()
    else:
        return None
    if recipe.precision == "bf16" and sharding.fsdp_version == 2:
        # Accelerate would have the loss rounded to bfloat16 too, and gradients added up in it.
        sharding.mixed_precision_policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    return sharding


def shard_on_cpu(accelerator: Accelerator, sharding: FullyShardedDataParallelPlugin) -> None:
    """Shard between processes of a CPU too, where Accelerate 1.15 would drop the plugin and train as DDP."""
    if sharding.fsdp_version != 2:
        raise ValueError("FSDP of version 1 needs GPUs; set fsdp_version: 2 in the launcher's config file")
    accelerator.state.fsdp_plugin = sharding
    accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP


def slicing(size: int, processes: int) -> ParallelismConfig:
    """So many neighbours share each layer; ValueError where some processes would be left over."""
    if processes % size:
        raise ValueError(f"tensor_parallel={size} takes {size} processes, or a multiple; got {processes}")
    return ParallelismConfig(tp_size=size)


def data_parallel(accelerator: Accelerator) -> tuple[int, int]:
    """(which, of how many): the share of the data this process sees, the same for all of a tensor-parallel group."""
    size = tensor_parallel(accelerator)
    return accelerator.process_index // size, accelerator.num_processes // size


def tensor_parallel(accelerator: Accelerator) -> int:
    """How many processes share each layer, 1 without tensor parallelism."""
    found = accelerator.parallelism_config
    return 1 if found is None else int(found.tp_size)


def total(accelerator: Accelerator, values: Tensor) -> Tensor:
    """The sum over all shares of the data, the same on every process."""
    return accelerator.reduce(values, "sum") / tensor_parallel(accelerator)


def draw_apart(accelerator: Accelerator, seed: int) -> None:
    """Let each share of the data draw dropout of its own; those of a tensor-parallel group must draw alike."""
    set_seed(seed + data_parallel(accelerator)[0])


def make(accelerator: Accelerator, recipe: Recipe, build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """A model for this process: its slice of one, a mere shape where another process sends the weights, or the whole.

    ValueError for a model that cannot be shared that way.
    """
    size = tensor_parallel(accelerator)
    waits = accelerator.is_fsdp2 and accelerator.state.fsdp_plugin.cpu_ram_efficient_loading
    model = empty(build) if waits and not accelerator.is_main_process else build()
    refuse_unequal_work(model.config, accelerator.num_processes)
    if size > 1 or accelerator.is_fsdp2:
        refuse_undivided(model)
    if size > 1:
        refuse_unslicable(model.config, recipe, size)
        return slice_layers(model, size, accelerator.num_processes // size)
    if accelerator.is_fsdp2:
        # FSDP2 admits a shared table in one group of modules only, and Accelerate's group has one input table.
        model.set_input_embeddings(model.get_input_embeddings())
    return model


def empty(build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """A model whose weights are not computed and take no memory until they are written to.

    One with buffers is made as usual: nobody sends those that are not saved.
    """
    with torch.device("meta"):
        model = build()
    if any(True for _ in model.buffers()):
        return build()
    # Not left on the meta device: Accelerate knows parameters by their addresses.
    model.to_empty(device="cpu")
    model.tie_weights()
    return model


class Slices(DistributedConfig):
    """Tensor-parallel groups side by side. What they share as FSDP2 does is left to us.

    For transformers 5.23 shards a model before it ties its tables: the one that is not trained would stay in use.
    """

    @property
    def dp_size(self) -> int:
        """As if all saw the same data."""
        return 1


def slice_layers(model: PreTrainedModel, size: int, shares: int) -> PreTrainedModel:
    """The model with this process's slice of every layer, by the plans of transformers and the model's config.

    Groups that see other shares of the data keep a piece of the slice each, by FSDP2.
    """
    kind: Any = type(model)
    given = {"config": model.config, "state_dict": model.state_dict(), "dtype": model.dtype}
    sliced = kind.from_pretrained(None, **given, distributed_config=Slices(tp_size=size, fsdp_size=shares))
    if shares > 1:
        mesh = sliced._mesh_manager.get_mesh("fsdp")
        for module in list(sliced.modules()):
            if type(module).__name__ in sliced._no_split_modules:
                fully_shard(module, mesh=mesh)
        fully_shard(sliced, mesh=mesh)
        sliced._is_fsdp_managed_module = True
    return sliced


def stacks(config: PreTrainedConfig) -> list[Any]:
    """The configs of a model's stacks: its own, or those of its parts; recurrent networks have none."""
    parts = [config, *(getattr(config, name) for name in config.sub_configs)]
    return [part for part in parts if isinstance(part, StackConfig)]


def refuse_unslicable(config: PreTrainedConfig, recipe: Recipe, size: int) -> None:
    """Raise ValueError where heads cannot be dealt out evenly, or their gradients would be counted twice."""
    for stack in stacks(config):
        for name in ("num_attention_heads", "num_key_value_heads"):
            heads = getattr(stack, name)
            if heads % size:
                raise ValueError(f"tensor_parallel={size} does not divide {name}={heads}; take a divisor of it")
        # transformers adds up the gradient of these norms over processes after each part, the earlier parts included.
        if stack.query_key_norm and recipe.accumulate > 1:
            raise ValueError(
                f"query_key_norm with tensor_parallel={size} trains in one part; got accumulate={recipe.accumulate}, "
                "so set it to 1"
            )


def refuse_undivided(model: PreTrainedModel, mend: str = "set strategy=ddp and tensor_parallel=1") -> None:
    """Raise ValueError for recurrent networks, whose steps read weights of several modules at once.

    And for a weight that is a single number, such as the scale of CLIP's logits, which FSDP2 does not take.
    """
    scalar = next((name for name, weight in model.named_parameters() if not weight.ndim), None)
    what = f"{type(model).__name__} has no layers that processes could share"
    if scalar is not None:
        what = f"{type(model).__name__} has the single number {scalar}, which processes cannot share"
    elif not isinstance(model.config, QkvConfig) or stacks(model.config):
        return
    raise ValueError(f"{what}; {mend}")


def refuse_unequal_work(config: PreTrainedConfig, processes: int) -> None:
    """Raise ValueError where processes would draw different layers to skip, and wait for each other for ever."""
    if processes > 1 and any(stack.layerdrop for stack in stacks(config)):
        raise ValueError(
            f"layerdrop skips other layers on each of {processes} processes, which then wait for each other's "
            "gradients; set model.layerdrop=0, or train on one process"
        )


def prepare(accelerator: Accelerator, model: Model, optimizer: Any) -> tuple[Model, Any]:
    """Model and optimizer as Accelerate wraps them; a sliced model exchanges what it needs by itself."""
    if tensor_parallel(accelerator) > 1:
        return accelerator.prepare_model(model, evaluation_mode=True), accelerator.prepare(optimizer)
    if accelerator.is_fsdp2 or zero.needs_all(accelerator):
        # `generate` then goes on until the longest text of all processes ends: they gather each layer together.
        managed: Any = model
        managed._is_fsdp_managed_module = True
    prepared, optimizer = accelerator.prepare(model, optimizer)
    return prepared, optimizer


def put_away(model: nn.Module) -> None:
    """Let go of the whole weights that FSDP2 keeps for a backward pass, where none will come."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def whole(accelerator: Accelerator, model: nn.Module, kind: Any) -> PreTrainedModel:
    """The trained model, a `kind`, in one piece on the main process; another one may be left with its own piece.

    All processes must call this.
    """
    plain: Any = accelerator.unwrap_model(model, keep_torch_compile=False)
    in_pieces = any(isinstance(parameter, DTensor) for parameter in plain.parameters())
    state: Any
    if zero.is_zero(accelerator):
        state = zero.weights(model)
    elif not in_pieces:
        return plain
    else:
        state = get_model_state_dict(plain, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if not accelerator.is_main_process:
        return plain
    config = plain.config.__class__.from_dict(plain.config.to_dict())
    return kind.from_pretrained(None, config=config, state_dict=state, dtype=plain.dtype)
