"""How does DeepSpeed's ZeRO share a training? It wraps the model and keeps weights and moments in pieces of its own.

What it keeps is read and written here by the names of parameters, so that a checkpoint of it is one of any engine.
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


def is_zero(accelerator: Accelerator) -> bool:
    """Whether DeepSpeed wraps the model."""
    return accelerator.distributed_type == DistributedType.DEEPSPEED


def refuse_missing() -> None:
    """Raise ValueError where DeepSpeed is asked for and not installed."""
    if not is_deepspeed_available():
        raise ValueError("the launcher's DeepSpeed is not installed; pip install deepspeed, or give strategy=fsdp2")


def share_on_cpu(accelerator: Accelerator) -> None:
    """Share between processes of a CPU too, where Accelerate 1.15 would drop the plugin and train as DDP."""
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(accelerator.mixed_precision)
    plugin.select(_from_accelerator_state=True)
    accelerator.state.deepspeed_plugins = plugin
    # It casts the model itself.
    accelerator.state._mixed_precision = "no"
    accelerator.state.distributed_type = DistributedType.DEEPSPEED
    PartialState._shared_state["distributed_type"] = DistributedType.DEEPSPEED


def settle(accelerator: Accelerator, recipe: Recipe) -> None:
    """Tell DeepSpeed what the recipe says, where it would go by numbers of its own; ValueError for what it cannot do.

    It clips by itself.
    """
    plugin = accelerator.state.deepspeed_plugin
    if plugin.zero_stage == 0:
        raise ValueError("zero_stage: 0 shares nothing but the data; leave DeepSpeed out, which is strategy=ddp")
    if recipe.ema_decay:
        raise ValueError("ema_decay averages no weights that DeepSpeed keeps; leave it out, or give strategy=fsdp2")
    settings = plugin.deepspeed_config
    settings["gradient_clipping"] = recipe.max_grad_norm
    parts = accelerator.num_processes * recipe.accumulate
    settings["train_micro_batch_size_per_gpu"] = max(recipe.batch_size // parts, 1)
    settings.pop("train_batch_size", None)
    # Or transformers would make each new model in pieces, the one that is saved at the end too.
    unset_hf_deepspeed_config()


def needs_all(accelerator: Accelerator) -> bool:
    """Whether processes need each other for each layer of a forward pass."""
    return is_zero(accelerator) and accelerator.state.deepspeed_plugin.zero_stage == 3


def weights(engine: Any) -> dict[str, Tensor]:
    """The model's weights in full precision, and its buffers; all processes must ask."""
    from deepspeed.utils import safe_get_full_fp32_param

    named = dict(engine.module.named_parameters(remove_duplicate=False))
    whole = {id(parameter): safe_get_full_fp32_param(parameter) for parameter in engine.module.parameters()}
    buffers = {name: value for name, value in engine.module.state_dict().items() if name not in named}
    return {**{name: whole[id(parameter)] for name, parameter in named.items()}, **buffers}


def moments(engine: Any) -> dict[str, Any]:
    """The optimizer's state by parameter name, as torch has it; all processes must ask."""
    from deepspeed.utils import safe_get_full_optimizer_state

    taken = {float(kept["step"]) for kept in engine.optimizer.optimizer.state.values()}
    link(engine.optimizer)
    state: dict[str, dict[str, Tensor]] = {}
    for name, parameter in engine.module.named_parameters() if taken else ():
        kept = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
        state[name] = {"step": torch.tensor(max(taken)), **kept}
    named = zip(settings(engine), groups(engine), strict=True)
    return {"state": state, "param_groups": [{**fields, "params": names} for fields, names in named]}


def settings(engine: Any) -> list[dict[str, Any]]:
    """What the optimizer's groups say, but for their parameters."""
    return [{k: v for k, v in group.items() if k != "params"} for group in engine.optimizer.param_groups]


def groups(engine: Any) -> list[list[str]]:
    """The names of the parameters in each of the optimizer's groups."""
    zero = engine.optimizer
    names = {id(parameter): name for name, parameter in engine.module.named_parameters()}
    if hasattr(zero, "bit16_groups"):
        return [[names[id(parameter)] for parameter in group] for group in zero.bit16_groups]
    found: list[list[str]] = [[] for _ in zero.param_groups]
    # Stage 3 cuts large groups up.
    for index, group in enumerate(zero.fp16_groups):
        found[zero.sub_group_to_group_id[index]] += [names[id(parameter)] for parameter in group]
    return found


def put_weights(engine: Any, found: dict[str, Tensor]) -> None:
    """Give the model the weights of the main process, in what it computes with and in what it is trained by."""
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

    for parameter, value in spread(engine.module, found):
        with GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(value)
        if hasattr(parameter, "ds_id"):
            safe_set_local_fp32_param(parameter, piece(parameter, value))
        else:
            safe_set_full_fp32_param(parameter, value)


def put_moments(engine: Any, found: dict[str, Any]) -> None:
    """Give the optimizer the moments of the main process, and what its groups say, which all know."""
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    for group, names in zip(engine.optimizer.param_groups, groups(engine), strict=True):
        saved = next(saved for saved in found["param_groups"] if not set(names).isdisjoint(saved["params"]))
        group.update({key: value for key, value in saved.items() if key != "params"})
    taken = {float(kept["step"]) for kept in found["state"].values()}
    start(engine.optimizer, torch.tensor(max(taken, default=0.0)))
    for key in MOMENTS:
        full = {name: kept[key] for name, kept in found["state"].items()}
        for parameter, value in spread(engine.module, full):
            if hasattr(parameter, "ds_id"):
                safe_set_local_optimizer_state(parameter, piece(parameter, value), key)
            else:
                safe_set_full_optimizer_state(parameter, value, key)


def start(zero: Any, step: Tensor) -> None:
    """Make the optimizer's state, which is otherwise made in its first step."""
    distributed.broadcast(step, 0)
    first = hasattr(zero, "single_partition_of_fp32_groups")
    for flat in zero.single_partition_of_fp32_groups if first else zero.fp32_partitioned_groups_flat:
        fresh = {key: torch.zeros_like(flat) for key in MOMENTS}
        zero.optimizer.state[flat] = {"step": step.clone(), **fresh}
    link(zero)


def link(zero: Any) -> None:
    """Let parameters find their moments: stages 1 and 2 of DeepSpeed 0.19 look for those of the first group only."""
    if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
        zero._hp_optimizer_states_linked = False
        zero._lazy_init_hp_params_optimizer_state()


def spread(model: nn.Module, found: dict[str, Tensor]) -> Iterator[tuple[Any, Tensor]]:
    """Each parameter with what the main process has for it, whole and on every process."""
    for name, parameter in model.named_parameters():
        value = torch.empty(getattr(parameter, "ds_shape", parameter.shape), device=parameter.device)
        if distributed.get_rank() == 0:
            value.copy_(found[name])
        distributed.broadcast(value, 0)
        yield parameter, value


def piece(parameter: Any, value: Tensor) -> Tensor:
    """This process's piece of a value, of the same size on all."""
    size = parameter.ds_tensor.numel()
    rank, flat = distributed.get_rank(), value.flatten()
    return nn.functional.pad(flat, (0, size * distributed.get_world_size() - len(flat)))[size * rank :][:size]
