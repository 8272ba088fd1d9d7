"""A step of generation: a decoder's forward for one token of each row, without what is the same at every step.

Shapes: B batch, T tokens, S keys, D hidden_size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values, check_padding_mask, check_position_ids
from ..checks.keywords import cache_field
from ..checks.pipeline_stage import is_elsewhere
from ..context import LayerContext, Memory
from ..execution import Plan, StackInputs, StackParts
from ..masks.masking import AttentionMasks, GivenMask, PreparedMasks
from ..position.hooks import Embedded
from ..position.token_layout import MaskSizes, Packing
from ..stack import Stack
from .layer_step import layer_steps
from .weight_copies import is_bare, is_plain, width_of_copies


class OneTokenPlan(Plan):
    """Read all that is cached with one token of each row, without a mask."""

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "OneTokenPlan | None":
        """Return the plan of a step of generation that reads every key."""
        hidden, mask, _ = inputs.embedded
        packing, sizes, positions = inputs.packing, inputs.sizes, inputs.packing.position_ids
        known = not packing.paged and packing.cu_seq_lens_q is None
        if not known or not sees_every_key(stack.config, hidden, sizes, mask):
            return None
        check_position_ids(hidden, positions)
        index = sizes.index(hidden.device)[None]
        positions = index if positions is None else positions
        keys = torch.arange(sizes.total, device=hidden.device) + (positions - index)
        return cls(stack, inputs, AttentionMasks(positions, keys, {"full": None, "state": None}))

    def memory(self) -> Memory:
        given = self.inputs.memory
        if given.hidden is None:
            return given
        mask, finished = MEMORY_MASKS.get(given.hidden, (None, None))
        if mask is None or mask is not given.mask:
            finished = super().memory()
            MEMORY_MASKS[given.hidden] = (given.mask, finished.mask)
            return finished
        return given._replace(mask=finished)


# The mask that a caller gave with an encoder's output, and the finished one: all steps of a text have the same.
MEMORY_MASKS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def sees_every_key(config: StackConfig, hidden: Tensor, sizes: MaskSizes, mask: GivenMask) -> bool:
    """Return True where one token for each row reads all that is cached, of which nothing is padding."""
    # A static cache has room for more than is there, and counts in a tensor.
    if isinstance(sizes.past, Tensor) or sizes.total != sizes.past + 1 or config.pattern != "full":
        return False
    if sizes.length > 1 or not sizes.past:
        return False
    if not config.causal or mask is None:
        return config.causal
    if not isinstance(mask, Tensor) or mask.ndim != 2 or not can_read_values(mask):
        return False
    check_padding_mask(mask, hidden, sizes.past, sizes.length)
    return bool(mask.all())


# Inputs of a step that are not in the signature of a stack.
GIVEN = ("encoder_hidden_states", "encoder_attention_mask")


class StackStep:
    """Stand in for a decoder stack where one token of each row follows others that are cached."""

    def __init__(self, stack: Stack, wide: int) -> None:
        self.stack, self.steps = stack, layer_steps(stack.config, [*stack.layers], wide)
        # What a step computes before, between and after position and layers: no dropout, and nothing that is absent.
        self.embed, self.enter, self.leave = (
            [each for each in modules if not (isinstance(each, nn.Identity | nn.Dropout) and is_bare(each))]
            for modules in (
                (stack.embed_tokens, stack.project_in),
                (stack.embed_norm, stack.embed_dropout, stack.embed_projection),
                (stack.norm, stack.final_dropout, stack.project_out),
            )
        )

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        if not is_one_token(*args, **kwargs):
            return self.stack(*args, **kwargs)
        ids, mask, position_ids, cache = args[:4]
        hidden = self.run(ids, mask, position_ids, cache, Memory(*(kwargs.get(name) for name in GIVEN)))
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, **cache_field(cache))

    def run(
        self, ids: Tensor, mask: Tensor | None, position_ids: Tensor | None, cache: Cache, memory: Memory
    ) -> Tensor:
        """Compute `Stack.run`: (B, 1) -> (B, 1, D)."""
        stack = self.stack
        embedded, sizes = Embedded(applied(self.embed, ids), mask), MaskSizes.of(stack.config, 1, cache)
        inputs = StackInputs(embedded, Packing.of(position_ids, {}), cache, sizes, memory, "sdpa")
        plan = OneTokenPlan.of(stack, inputs) or Plan(stack, inputs)
        hidden = applied(self.enter, stack.position.embed(embedded, plan.positions))
        return applied(self.leave, self.run_layers(hidden, plan.contexts(hidden)))

    def run_layers(self, hidden: Tensor, contexts: list[LayerContext]) -> Tensor:
        """Run the steps of layers, or the layers: (B, 1, D) -> same."""
        cache, position = contexts[0].cache, contexts[0].position
        read = all(getattr(cache, "is_updated", {}).values())
        if not self.steps or not is_plain(hidden) or position.query_key is not None or not read:
            for layer, context in zip(self.stack.layers, contexts, strict=False):
                hidden = layer(hidden, context)
            return hidden
        rows = hidden[:, 0]
        for step, context in zip(self.steps, contexts, strict=False):
            rows = step(rows, context)
        return rows[:, None]


def applied(modules: Sequence[nn.Module], hidden: Tensor) -> Tensor:
    """Apply modules one after another."""
    for module in modules:
        hidden = module(hidden)
    return hidden


def is_one_token(
    input_ids: object = None,
    attention_mask: object = None,
    position_ids: object = None,
    past_key_values: object = None,
    inputs_embeds: object = None,
    *,
    use_cache: bool | None = None,
    **kwargs: object,
) -> bool:
    """Return True for one token of each row after others that are cached, of which nothing is recorded."""
    return (
        bool(use_cache)
        and not torch.compiler.is_compiling()
        and type(input_ids) is Tensor
        and input_ids.shape[-1] == 1 == input_ids.ndim - 1
        and inputs_embeds is None
        and isinstance(past_key_values, Cache)
        and past_key_values.get_seq_length() > 0
        and (getattr(attention_mask, "ndim", 2) == 2 or isinstance(attention_mask, PreparedMasks))
        and not torch.is_grad_enabled()
        and kwargs.pop("return_dict", None) is not False
        and all(value is None or value is False or name in GIVEN for name, value in kwargs.items())
    )


def stack_steps(model: nn.Module) -> dict[nn.Module, StackStep]:
    """Return a step for each whole decoder that attends by sdpa, records nothing and has the stock forward."""
    stacks, wide = (each for each in model.modules() if isinstance(each, Stack)), width_of_copies(model)
    return {stack: StackStep(stack, wide) for stack in stacks if can_step(stack)}


def can_step(stack: Stack) -> bool:
    """Return True for a stack for which a step is the same as its forward."""
    config = stack.config
    own = type(stack).forward.__qualname__ != "QkvDecoderModel.forward" or type(stack).run is not Stack.run
    if own or stack.training or any(map(is_elsewhere, stack.layers)) or not is_bare(stack):
        return False
    recorded = config.output_hidden_states or config.output_attentions or config.return_dict is False
    recorded = recorded or getattr(config, "output_router_logits", False)
    plain = config.attn_logit_softcapping is None and not recorded
    return (config._attn_implementation, config.frontend) == ("sdpa", "tokens") and plain
