"""Read and write the weights and optimizer state that DeepSpeed's ZeRO shards, by the names of parameters.

A checkpoint of ZeRO is thereby the same as one of any other strategy. DeepSpeed's universal checkpoints would not do:
they are converted by a script after a run from its pickled shards, which are not written atomically, and only
DeepSpeed loads them.
"""

from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DeepSpeedPlugin, DistributedType, is_deepspeed_available
from torch import Tensor, distributed, nn
from transformers.integrations import unset_hf_deepspeed_config

from qkv.scripts.recipes.schema import Recipe

MOMENTS = ("exp_avg", "exp_avg_sq")


def is_deepspeed(accelerator: Accelerator) -> bool:
    """Tell whether DeepSpeed wraps the model."""
    return accelerator.distributed_type == DistributedType.DEEPSPEED


def check_installed() -> None:
    """Raise ValueError where DeepSpeed is not installed."""
    if not is_deepspeed_available():
        raise ValueError("the launcher's DeepSpeed is not installed; pip install deepspeed, or set strategy=fsdp2")


def enable_on_cpu(accelerator: Accelerator) -> None:
    """Enable DeepSpeed between CPU processes, where Accelerate 1.15 drops the plugin and trains as DDP."""
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(accelerator.mixed_precision)
    plugin.select(_from_accelerator_state=True)
    accelerator.state.deepspeed_plugins = plugin
    # DeepSpeed casts the model itself.
    accelerator.state._mixed_precision = "no"
    accelerator.state.distributed_type = DistributedType.DEEPSPEED
    PartialState._shared_state["distributed_type"] = DistributedType.DEEPSPEED


def configure(accelerator: Accelerator, recipe: Recipe) -> None:
    """Set DeepSpeed's gradient clipping and batch size as the recipe says; ValueError for what it does not support."""
    plugin = accelerator.state.deepspeed_plugin
    if plugin.zero_stage == 0:
        raise ValueError("zero_stage: 0 shares nothing but the data; leave DeepSpeed out, which is strategy=ddp")
    if recipe.optimization.ema_decay:
        raise ValueError("ema_decay does not work with DeepSpeed; leave it out, or set strategy=fsdp2")
    settings = plugin.deepspeed_config
    settings["gradient_clipping"] = recipe.optimization.max_grad_norm
    micro_batches = accelerator.num_processes * recipe.optimization.accumulate
    settings["train_micro_batch_size_per_gpu"] = max(recipe.optimization.batch_size // micro_batches, 1)
    settings.pop("train_batch_size", None)
    # Or transformers would shard each new model, also the one that is saved at the end.
    unset_hf_deepspeed_config()


def is_stage_3(accelerator: Accelerator) -> bool:
    """Tell whether weights are sharded too, so that processes need each other in each forward pass."""
    return is_deepspeed(accelerator) and accelerator.state.deepspeed_plugin.zero_stage == 3


def full_weights(engine: Any) -> dict[str, Tensor]:
    """Gather the model's weights in full precision, and its buffers; all processes must call this."""
    from deepspeed.utils import safe_get_full_fp32_param

    named = dict(engine.module.named_parameters(remove_duplicate=False))
    full = {id(parameter): safe_get_full_fp32_param(parameter) for parameter in engine.module.parameters()}
    buffers = {name: value for name, value in engine.module.state_dict().items() if name not in named}
    return {**{name: full[id(parameter)] for name, parameter in named.items()}, **buffers}


def optimizer_state(engine: Any) -> dict[str, Any]:
    """Gather the optimizer's state by parameter name, in torch's format; all processes must call this."""
    from deepspeed.utils import safe_get_full_optimizer_state

    steps = {float(state["step"]) for state in engine.optimizer.optimizer.state.values()}
    link_moments(engine.optimizer)
    states: dict[str, dict[str, Tensor]] = {}
    for name, parameter in engine.module.named_parameters() if steps else ():
        moments = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
        states[name] = {"step": torch.tensor(max(steps)), **moments}
    groups = zip(engine.optimizer.param_groups, group_names(engine), strict=True)
    return {"state": states, "param_groups": [{**group, "params": names} for group, names in groups]}


def group_names(engine: Any) -> list[list[str]]:
    """Return the names of the parameters in each of the optimizer's groups."""
    zero = engine.optimizer
    names = {id(parameter): name for name, parameter in engine.module.named_parameters()}
    if hasattr(zero, "bit16_groups"):
        return [[names[id(parameter)] for parameter in group] for group in zero.bit16_groups]
    groups: list[list[str]] = [[] for _ in zero.param_groups]
    # Stage 3 splits large groups.
    for index, group in enumerate(zero.fp16_groups):
        groups[zero.sub_group_to_group_id[index]] += [names[id(parameter)] for parameter in group]
    return groups


def load_weights(engine: Any, weights: dict[str, Tensor]) -> None:
    """Load the main process's weights, into the copy that computes and the one that is trained."""
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

    for parameter, value in broadcast(engine.module, weights):
        with GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(value)
        if hasattr(parameter, "ds_id"):
            safe_set_local_fp32_param(parameter, local_shard(parameter, value))
        else:
            safe_set_full_fp32_param(parameter, value)


def load_optimizer_state(engine: Any, state: dict[str, Any]) -> None:
    """Load the main process's moments, and the settings of the groups, which all processes have."""
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    for group, names in zip(engine.optimizer.param_groups, group_names(engine), strict=True):
        saved = next(saved for saved in state["param_groups"] if not set(names).isdisjoint(saved["params"]))
        group.update({key: value for key, value in saved.items() if key != "params"})
    steps = {float(moments["step"]) for moments in state["state"].values()}
    init_optimizer_state(engine.optimizer, torch.tensor(max(steps, default=0.0)))
    for key in MOMENTS:
        full = {name: moments[key] for name, moments in state["state"].items()}
        for parameter, value in broadcast(engine.module, full):
            if hasattr(parameter, "ds_id"):
                safe_set_local_optimizer_state(parameter, local_shard(parameter, value), key)
            else:
                safe_set_full_optimizer_state(parameter, value, key)


def init_optimizer_state(zero: Any, step: Tensor) -> None:
    """Create the optimizer's state, which DeepSpeed otherwise creates in its first step."""
    distributed.broadcast(step, 0)
    stage_2 = hasattr(zero, "single_partition_of_fp32_groups")
    for flat in zero.single_partition_of_fp32_groups if stage_2 else zero.fp32_partitioned_groups_flat:
        zero.optimizer.state[flat] = {"step": step.clone(), **{key: torch.zeros_like(flat) for key in MOMENTS}}
    link_moments(zero)


def link_moments(zero: Any) -> None:
    """Link parameters to their moments: stages 1 and 2 of DeepSpeed 0.19 link those of the first group only."""
    if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
        zero._hp_optimizer_states_linked = False
        zero._lazy_init_hp_params_optimizer_state()


def broadcast(model: nn.Module, values: dict[str, Tensor]) -> Iterator[tuple[Any, Tensor]]:
    """Yield each parameter with the main process's value for it, whole and on every process."""
    for name, parameter in model.named_parameters():
        value = torch.empty(getattr(parameter, "ds_shape", parameter.shape), device=parameter.device)
        if distributed.get_rank() == 0:
            value.copy_(values[name])
        distributed.broadcast(value, 0)
        yield parameter, value


def local_shard(parameter: Any, value: Tensor) -> Tensor:
    """Return this process's shard of a value, padded to the size that all shards have."""
    size = parameter.ds_tensor.numel()
    rank, flat = distributed.get_rank(), value.flatten()
    return nn.functional.pad(flat, (0, size * distributed.get_world_size() - len(flat)))[size * rank :][:size]
