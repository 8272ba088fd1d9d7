"""What does Hugging Face need to know about every family? Flags, initialisation, ties."""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init

from ..configuration.configuration_base import QkvConfig


class QkvPreTrainedModel(PreTrainedModel):
    """The Hugging Face side of every family: what it supports, how it starts, what it ties.

    Every model can be built on the meta device and filled from a checkpoint alone: no buffer carries anything.
    """

    config: QkvConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _no_split_modules = ["Layer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def post_init(self) -> None:
        """Finish construction; ties are set where transformers reads them without asking: before it saves."""
        self._tied_weights_keys = self.tied_parameters()
        super().post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        for name, parameter in module.named_parameters(recurse=False):
            if name in ("class_token", "distillation_token", "mask_token"):
                init.trunc_normal_(parameter, std=self.config.initializer_range)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """The ties that hold for this config; transformers asks before it loads, saves or moves weights."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return self.tied_parameters()

    def tied_parameters(self) -> dict[str, str]:
        """{tied parameter: its source}, none by default."""
        return {}


def exactly_one(**given: Any) -> None:
    """Raise unless exactly one of the named inputs is given."""
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"give exactly one of {' and '.join(given)}")
