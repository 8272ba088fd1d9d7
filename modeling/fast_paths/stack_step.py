"""A step of generation: a decoder's forward for one token of each row, without the work that is the same at every step.

Shapes: B batch, D hidden_size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from ..checks.keywords import cache_field
from ..context import LayerContext, Memory
from ..execution import Plan, StackInputs, way_of
from ..pipeline_stage import is_elsewhere
from ..position.hooks import Embedded
from ..position.token_layout import MaskSizes, Packing
from ..stack import Stack
from .layer_step import LayerStep, is_step
from .one_token import OneTokenPlan
from .weight_copies import is_bare

# Inputs of a step that are not in the signature of a stack.
GIVEN = ("encoder_hidden_states", "encoder_attention_mask")


class StackStep:
    """Stand in for a decoder stack where one token of each row follows others that are cached."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        # What a step computes before, between and after position and layers: no dropout, and nothing that is absent.
        self.embed, self.enter, self.leave = (
            [each for each in modules if not (isinstance(each, nn.Identity | nn.Dropout) and is_bare(each))]
            for modules in (
                (stack.embed_tokens, stack.project_in),
                (stack.embed_norm, stack.embed_dropout, stack.embed_projection),
                (stack.norm, stack.final_dropout, stack.project_out),
            )
        )
        # Found at the first step: the steps of layers and of the stack are made together.
        self.steps: list[LayerStep] | None = None

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
        """Run the layers, of which all are steps or none is, for they share a cache: (B, 1, D) -> same."""
        if self.steps is None:
            ways = [way_of(layer) for layer in self.stack.layers]
            steps = [way for way in ways if isinstance(way, LayerStep)]
            self.steps = steps if len(steps) == len(ways) else []
        if self.steps and is_step(hidden, contexts[0]):
            rows = hidden[:, 0]
            for step, context in zip(self.steps, contexts, strict=False):
                rows = step.step(rows, context)
            return rows[:, None]
        for layer, context in zip(self.stack.layers, contexts, strict=False):
            hidden = way_of(layer)(hidden, context)
        return hidden


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
        and (attention_mask is None or (isinstance(attention_mask, Tensor) and attention_mask.ndim == 2))
        and not torch.is_grad_enabled()
        and kwargs.pop("return_dict", None) is not False
        and all(value is None or value is False or name in GIVEN for name, value in kwargs.items())
    )


def stack_steps(model: nn.Module) -> dict[nn.Module, StackStep]:
    """Return a step for each whole decoder that attends by sdpa, records nothing and has the stock forward."""
    return {module: StackStep(module) for module in model.modules() if isinstance(module, Stack) and can_step(module)}


def can_step(stack: Stack) -> bool:
    """Return True for a stack for which a step is the same as its forward."""
    config = stack.config
    own = type(stack).forward.__qualname__ != "QkvDecoderModel.forward" or type(stack).run is not Stack.run
    if own or stack.training or any(map(is_elsewhere, stack.layers)) or not is_bare(stack):
        return False
    recorded = config.output_hidden_states or config.output_attentions or config.return_dict is False
    return (config._attn_implementation, config.frontend) == ("sdpa", "tokens") and not recorded
