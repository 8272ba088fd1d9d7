"""A step of generation: one token of each row after others, through the layers of a decoder in few operations.

A stack's own forward checks, records and chooses anew at every call what is the same at every step.

Shapes: B batch, S keys and memory, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from ..checks.inputs import check_length
from ..checks.keywords import cache_field
from ..kernel import attention_backend
from ..masking import Mask, build_masks, build_memory_mask
from ..pipeline_stage import is_elsewhere
from ..position.hooks import Embedded
from ..position.token_layout import MaskSizes
from ..stack import Stack
from .layer_step import layer_step
from .one_token import one_token_masks

# What a stack is given at a step, beside what its own signature names.
GIVEN = ("encoder_hidden_states", "encoder_attention_mask")


class DecodingStep:
    """Stand in for the forward of a decoder stack where one token of each row follows others that are cached.

    All other calls go through the stack's own forward.
    """

    def __init__(self, stack: Any, wide: int) -> None:
        self.stack = stack
        layers = [layer_step(stack.config, layer, wide) for layer in stack.layers]
        self.layers = list(zip(layers, stack.config.layer_patterns, strict=False))
        self.memory: tuple[Any, ...] = (None, None, None)

    def __call__(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        *,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        given = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        if not (use_cache and is_step(input_ids, attention_mask, past_key_values, inputs_embeds, **kwargs)):
            return type(self.stack).forward(self.stack, *given, use_cache=use_cache, **kwargs)
        memory = [kwargs.get(name) for name in GIVEN]
        hidden = self.run(input_ids, attention_mask, position_ids, past_key_values, memory)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, **cache_field(past_key_values))

    def run(
        self,
        input_ids: Any,
        padding_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Cache,
        memory: list[Any],
    ) -> Tensor:
        """Do what `Stack.run` does: (B, 1) -> (B, 1, D)."""
        stack, config = self.stack, self.stack.config
        hidden = stack.embed_tokens(input_ids)
        sizes = MaskSizes.of(config, 1, past_key_values)
        given = (config, hidden, sizes, padding_mask, position_ids)
        masks = one_token_masks(*given) or build_masks(*given, attention_implementation="sdpa")
        check_length(config, masks.positions, sizes.past, 1)
        hidden = stack.position.embed(Embedded(stack.project_in(hidden)), masks.positions)
        hidden = stack.embed_projection(stack.embed_norm(hidden))
        states = stack.position_states(Embedded(hidden), masks, sizes, None)
        memory_mask, hidden = self.memory_mask(hidden, *memory), hidden[:, 0]
        for layer, pattern in self.layers[: config.num_hidden_layers]:
            hidden = layer(hidden, masks.masks[pattern], memory[0], memory_mask, states[pattern], past_key_values)
        return stack.project_out(stack.norm(hidden)[:, None])

    def memory_mask(self, hidden: Tensor, memory: Tensor | None, padding_mask: Tensor | None) -> Mask:
        """Return the mask of cross-attention, which is built once for all steps."""
        if memory is None:
            return None
        given = self.memory  # other threads may generate from another source
        if given[0] is not memory or given[1] is not padding_mask:
            mask = build_memory_mask(self.stack.config, "sdpa", hidden, memory, padding_mask)
            given = self.memory = (memory, padding_mask, mask)
        return given[2]


def is_step(
    input_ids: Any, attention_mask: Any, past_key_values: Any, inputs_embeds: Tensor | None, **kwargs: Any
) -> bool:
    """Return True for one token of each row after others that are cached, of which nothing is recorded."""
    return (
        not torch.compiler.is_compiling()
        and type(input_ids) is Tensor
        and input_ids.shape[-1] == 1 == input_ids.ndim - 1
        and inputs_embeds is None
        and isinstance(past_key_values, Cache)
        and past_key_values.get_seq_length() > 0
        and all(getattr(past_key_values, "is_updated", {}).values())
        and (attention_mask is None or (isinstance(attention_mask, Tensor) and attention_mask.ndim == 2))
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and kwargs.pop("return_dict", None) is not False
        and all(value is None or value is False or name in GIVEN for name, value in kwargs.items())
    )


def can_step(stack: nn.Module) -> bool:
    """Return True for a whole decoder that attends by sdpa, records nothing and has no forward of its own."""
    if not isinstance(stack, Stack) or stack.training or any(map(is_elsewhere, stack.layers)):
        return False
    config: Any = stack.config
    if type(stack).run is not Stack.run or type(stack).forward.__qualname__ != "QkvDecoderModel.forward":
        return False
    recorded = config.output_hidden_states or config.return_dict is False
    return attention_backend(config, {}) == "sdpa" and config.frontend == "tokens" and not recorded
