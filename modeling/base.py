"""What does Hugging Face need to know about every family? Flags, initialisation, ties."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers import initialization as init

from ..configuration.configuration_base import QkvConfig
from .check import refuse_other_family


# trf-ignore: TRF013  each family calls post_init, last
class QkvPreTrainedModel(PreTrainedModel):
    """The Hugging Face side of every family: what it supports, how it starts, what it ties.

    Every model can be built on the meta device and filled from a checkpoint alone: no buffer carries anything.
    """

    config: QkvConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def __init__(self, config: QkvConfig, *inputs: Any, **kwargs: Any) -> None:
        refuse_other_family(self, config)
        # It may have been edited since it was made.
        config.validate()
        super().__init__(config, *inputs, **kwargs)

    def post_init(self) -> None:
        """Finish construction; ties are set where transformers reads them without asking: before it saves."""
        self._tied_weights_keys = self.tied_parameters()
        super().post_init()

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        super()._init_weights(module)
        for name, parameter in module.named_parameters(recurse=False):
            if name == "layer_scale" and getattr(self.config, "layer_scale", None) is not None:
                init.constant_(parameter, module.initial_scale)
            else:
                self.init_token(name, parameter)

    def init_token(self, name: str, parameter: torch.Tensor) -> None:
        """Start the tokens that stand for no patch; other parameters have their start already."""
        if name in ("class_token", "distillation_token"):
            init.trunc_normal_(parameter, std=self.config.initializer_range)
        elif name == "mask_token":
            init.zeros_(parameter)

    def recorded(self) -> dict[str, bool]:
        """What this config asks the stacks inside to record, whose own configs do not say."""
        return {flag: True for flag in ("output_attentions", "output_hidden_states") if getattr(self.config, flag)}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """The ties that hold for this config; transformers asks before it loads, saves or moves weights."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return self.tied_parameters()

    def tied_parameters(self) -> dict[str, str]:
        """{tied parameter: its source}, none by default."""
        return {}


def can_return_tuple(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a head's output into a tuple when `return_dict=False` or the config says so.

    transformers' decorator of this name leaves it to the model inside to read the config as well, and a head cannot
    work with the tuple it then gets.
    """

    @wraps(forward)
    def wrapper(self: PreTrainedModel, *args: Any, return_dict: bool | None = None, **kwargs: Any) -> Any:
        output = forward(self, *args, return_dict=True, **kwargs)
        wanted = self.config.return_dict if return_dict is None else return_dict
        return output if wanted else output.to_tuple()

    return wrapper


def exactly_one(**given: Any) -> None:
    """Raise unless exactly one of the named inputs is given."""
    if sum(value is not None for value in given.values()) != 1:
        present = " and ".join(name for name, value in given.items() if value is not None) or "none"
        raise ValueError(f"give exactly one of {' and '.join(given)}; got {present}")
