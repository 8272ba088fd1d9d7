"""Build the Accelerator of a recipe, and distribute the model by DDP, FSDP2 or tensor parallelism.

With DDP each process has a whole model; with FSDP2 a shard of every layer, gathered when it is needed; with tensor
parallelism some heads and intermediate units of every layer. Processes of a tensor-parallel group see the same data.
"""

import ctypes
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import (
    DistributedType,
    FullyShardedDataParallelPlugin,
    ParallelismConfig,
    parse_flag_from_env,
    set_seed,
)
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.distributed import DistributedConfig

from qkv.configuration.configuration_base import QkvConfig
from qkv.configuration.configuration_stack import StackConfig
from qkv.scripts.common.phases import say
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.distributed import model_class
from qkv.scripts.training.trackers import tracker_names

# Variables of `accelerate launch --config_file` for strategies that are not for this loop.
REFUSED = {"ACCELERATE_USE_DEEPSPEED": "DeepSpeed", "ACCELERATE_USE_PARALLELISM_CONFIG": "parallelism config"}
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)  # on the main process
COMPILED_STEPS = 10_000  # of a compiled training at least; GPT-2 saves 18 ms each on an H100, and compiles for a minute
TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of mallopt, from glibc's malloc.h


def with_device_defaults(recipe: Recipe) -> Recipe:
    """Set the precision and the compilation of a recipe that names none, by the device.

    A GPU takes bfloat16 where it computes it, and compiles causal language models, whose batches have one shape, in
    trainings that are long enough to save more time than compiling takes.
    """
    compute, optimization = recipe.compute, recipe.optimization
    has_gpu = torch.cuda.is_available()
    precision = compute.precision or ("bf16" if has_gpu and torch.cuda.is_bf16_supported() else "fp32")
    compiles = compute.compile
    if compiles is None:
        is_long = optimization.epochs is None and optimization.max_steps >= COMPILED_STEPS
        alone = compute.strategy == "auto" and int(os.environ.get("WORLD_SIZE", 1)) == 1
        compiles = has_gpu and is_long and alone and recipe.model.architecture == "QkvDecoderForCausalLM"
    return replace(recipe, compute=replace(compute, precision=precision, compile=compiles))


def build_accelerator(recipe: Recipe) -> Accelerator:
    """Build the Accelerator of a recipe and its launcher; ValueError where they disagree."""
    check_strategies(recipe)
    fsdp = fsdp_plugin(recipe)
    accelerator = Accelerator(
        cpu=not torch.accelerator.is_available(),  # or several processes would each train alone
        mixed_precision="bf16" if recipe.compute.precision == "bf16" else "no",
        dynamo_backend="inductor" if recipe.compute.compile else "no",
        log_with=tracker_names(recipe) or None,
        project_dir="runs",  # replaced by the run folder, which is opened later
        fsdp_plugin=fsdp,
    )
    local, cores = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), os.cpu_count() or 1
    if accelerator.num_processes == 1 and parse_flag_from_env("ACCELERATE_USE_CPU"):
        say("accelerate launch --cpu starts one process, whatever --num_processes says; cpu.yaml of qkv starts several")
    elif accelerator.device.type == "cpu" and local > cores:
        say(f"warning: {local} processes share {cores} cores and wait for each other; start {cores} or fewer")
    if fsdp is not None and accelerator.distributed_type == DistributedType.MULTI_CPU:
        enable_fsdp_on_cpu(accelerator, fsdp)
    if (size := recipe.compute.tensor_parallel) > 1:
        if (processes := accelerator.num_processes) % size:
            raise ValueError(f"tensor_parallel={size} takes {size} processes, or a multiple; got {processes}")
        accelerator.state.parallelism_config = ParallelismConfig(tp_size=size)
    return accelerator


def keep_freed_memory(device: torch.device) -> None:
    """Let a process that computes on a CPU keep the memory that it frees, for its next tensors.

    Otherwise glibc returns large blocks to the kernel, which clears each page of them again at the next touch, in every
    step of a training. The process holds somewhat more memory. Other C libraries stay as they are.

    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD, https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    if device.type == "cpu" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, -1)


def check_strategies(recipe: Recipe) -> None:
    """Raise ValueError where recipe and launcher name two strategies, or the launcher one that `qkv train` lacks."""
    for variable, name in REFUSED.items():
        if parse_flag_from_env(variable):
            raise ValueError(
                f"qkv train does not take the launcher's {name}, which Trainer does; leave it out of the config file, "
                "and set strategy=fsdp2 or tensor_parallel=2 in the recipe"
            )
    compute = recipe.compute
    strategies = [f"tensor_parallel={compute.tensor_parallel}"] if compute.tensor_parallel > 1 else []
    strategies += [f"strategy={compute.strategy}"] if compute.strategy != "auto" else []
    strategies += ["the launcher's FSDP"] if parse_flag_from_env("ACCELERATE_USE_FSDP") else []
    if len(strategies) > 1:
        raise ValueError(f"{' and '.join(strategies)} are two distributed strategies; leave one out")


def fsdp_plugin(recipe: Recipe) -> FullyShardedDataParallelPlugin | None:
    """Configure FSDP2 by the recipe or the launcher's config file; None without FSDP."""
    if recipe.compute.strategy == "fsdp2":
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=True
        )
    elif parse_flag_from_env("ACCELERATE_USE_FSDP"):
        plugin = FullyShardedDataParallelPlugin()
    else:
        return None
    if recipe.compute.precision == "bf16" and plugin.fsdp_version == 2:
        # Accelerate would round the loss to bfloat16 too, and reduce gradients in it.
        plugin.mixed_precision_policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    return plugin


def enable_fsdp_on_cpu(accelerator: Accelerator, plugin: FullyShardedDataParallelPlugin) -> None:
    """Enable FSDP2 between CPU processes, where Accelerate 1.15 drops the plugin and trains as DDP."""
    if plugin.fsdp_version != 2:
        raise ValueError("FSDP of version 1 needs GPUs; set fsdp_version: 2 in the launcher's config file")
    accelerator.state.fsdp_plugin = plugin
    accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP


def data_parallel(accelerator: Accelerator) -> tuple[int, int]:
    """Return the data-parallel rank and size; all processes of a tensor-parallel group have the same rank."""
    size = tensor_parallel_size(accelerator)
    return accelerator.process_index // size, accelerator.num_processes // size


def tensor_parallel_size(accelerator: Accelerator) -> int:
    """Return how many processes share each layer, 1 without tensor parallelism."""
    config = accelerator.parallelism_config
    return 1 if config is None else int(config.tp_size)


def reduce_sum(accelerator: Accelerator, values: Tensor) -> Tensor:
    """Sum values over the data-parallel ranks; the result is the same on every process."""
    return accelerator.reduce(values, "sum") / tensor_parallel_size(accelerator)


def seed_ranks(accelerator: Accelerator, seed: int) -> None:
    """Seed dropout by data-parallel rank: processes of one tensor-parallel group must draw alike."""
    set_seed(seed + data_parallel(accelerator)[0])


def make_model(accelerator: Accelerator, recipe: Recipe, build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """Build this process's model; ValueError for a model that the strategy cannot distribute."""
    size = tensor_parallel_size(accelerator)
    receives = accelerator.is_fsdp2 and accelerator.state.fsdp_plugin.cpu_ram_efficient_loading
    model = empty_model(build) if receives and not accelerator.is_main_process else build()
    check_layerdrop(model.config, accelerator.num_processes)
    if size > 1 or accelerator.is_fsdp2:
        check_shardable(model)
    if size > 1:
        check_tensor_parallel(model.config, recipe, size)
        return apply_tensor_parallel(model, size, accelerator.num_processes // size)
    if accelerator.is_fsdp2:
        if any(buffer in model.state_dict() for buffer, _ in model.named_buffers()):
            # Accelerate 1.15 sends parameters alone; here every process has built the whole model, for it has buffers.
            accelerator.state.fsdp_plugin.cpu_ram_efficient_loading = False
        # FSDP2 allows a tied table in one group of modules only, and Accelerate's group has one input table.
        model.set_input_embeddings(model.get_input_embeddings())
    return model


def empty_model(build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """Build a model without initialising its weights, unless it has buffers, which FSDP2 does not send."""
    with torch.device("meta"):
        model = build()
    if any(True for _ in model.buffers()):
        return build()
    # Off the meta device, as Accelerate tells parameters apart by their addresses.
    model.to_empty(device="cpu")
    model.tie_weights()
    return model


class TensorParallelConfig(DistributedConfig):
    """Tensor-parallel groups that are sharded over the data by us.

    transformers 5.23 shards a model before it ties its tables, so that the untrained one would stay in use.
    """

    @property
    def dp_size(self) -> int:
        """Let transformers shard nothing over the data."""
        return 1


def apply_tensor_parallel(model: PreTrainedModel, size: int, data_parallel_size: int) -> PreTrainedModel:
    """Split every layer over `size` processes by transformers' tensor-parallel plans, and over groups by FSDP2."""
    kind: Any = type(model)
    groups = TensorParallelConfig(tp_size=size, fsdp_size=data_parallel_size)
    sliced: Any = kind.from_pretrained(
        None, config=model.config, state_dict=model.state_dict(), dtype=model.dtype, distributed_config=groups
    )
    if data_parallel_size > 1:
        mesh = sliced._mesh_manager.get_mesh("fsdp")
        for module in list(sliced.modules()):
            if type(module).__name__ in sliced._no_split_modules:
                fully_shard(module, mesh=mesh)
        fully_shard(sliced, mesh=mesh)
        sliced._is_fsdp_managed_module = True
    return sliced


def stack_configs(config: PreTrainedConfig) -> list[Any]:
    """Return the configs of a model's stacks; recurrent networks have none."""
    parts = [config, *(getattr(config, name) for name in config.sub_configs)]
    return [part for part in parts if isinstance(part, StackConfig)]


def check_tensor_parallel(config: PreTrainedConfig, recipe: Recipe, size: int) -> None:
    """Raise ValueError where heads cannot be split evenly, or their gradients would be counted twice."""
    for stack in stack_configs(config):
        for name in ("num_attention_heads", "num_key_value_heads"):
            heads = getattr(stack, name)
            if heads % size:
                raise ValueError(f"tensor_parallel={size} does not divide {name}={heads}; take a divisor of it")
        # transformers reduces the gradients of these norms after each micro-batch, with those of earlier ones.
        if stack.query_key_norm != "none" and (count := recipe.optimization.accumulate) > 1:
            raise ValueError(f"query_key_norm with tensor_parallel={size} needs accumulate=1; got accumulate={count}")


def check_shardable(model: PreTrainedModel, mend: str = "set strategy=ddp and tensor_parallel=1") -> None:
    """Raise ValueError for models that FSDP2 and tensor parallelism cannot distribute.

    Recurrent networks read weights of several modules at each step, and FSDP2 shards no scalars such as CLIP's scale.
    """
    scalar = next((name for name, weight in model.named_parameters() if not weight.ndim), None)
    if scalar is not None:
        reason = f"has the scalar parameter {scalar}, which processes cannot share"
    elif isinstance(model.config, QkvConfig) and not stack_configs(model.config):
        reason = "has no layers that processes could share"
    else:
        return
    raise ValueError(f"{type(model).__name__} {reason}; {mend}")


def check_layerdrop(config: PreTrainedConfig, processes: int) -> None:
    """Raise ValueError where processes would skip different layers, and wait for each other's gradients forever."""
    if processes > 1 and any(stack.layerdrop for stack in stack_configs(config)):
        raise ValueError(f"layerdrop skips different layers on each of {processes} processes; set model.layerdrop=0")


def prepare(accelerator: Accelerator, model: Any, optimizer: Any) -> tuple[Any, Any]:
    """Wrap model and optimizer by Accelerate; a tensor-parallel model needs no wrapper."""
    if tensor_parallel_size(accelerator) > 1:
        return accelerator.prepare_model(model, evaluation_mode=True), accelerator.prepare(optimizer)
    if accelerator.is_fsdp2:
        # `generate` then goes on until the longest text of all processes ends: they gather each layer together.
        model._is_fsdp_managed_module = True
    model, optimizer = accelerator.prepare(model, optimizer)
    return model, optimizer


def full_model(accelerator: Accelerator, model: nn.Module) -> PreTrainedModel:
    """Return the model, whole on the main process, a shard on others; all processes must call this."""
    plain: Any = accelerator.unwrap_model(model, keep_torch_compile=False)
    if not any(isinstance(parameter, DTensor) for parameter in plain.parameters()):
        return plain
    state = get_model_state_dict(plain, options=FULL)
    if not accelerator.is_main_process:
        return plain
    config = plain.config.__class__.from_dict(plain.config.to_dict())
    return model_class(plain).from_pretrained(None, config=config, state_dict=state, dtype=plain.dtype)
