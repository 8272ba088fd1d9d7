"""The ways to compute the layers of a stack: the plain one is here, faster ones of equal numbers register themselves.

Shapes: B batch, T tokens, D hidden_size.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ..configuration.configuration_stack import StackConfig
from .checks.inputs import check_length, check_position_ids, check_stack_inputs
from .checks.keywords import check_keywords, layer_cache
from .checks.pipeline_stage import cache_of_stage
from .context import LayerContext, Memory, Projection
from .kernel import attention_backend, records_states, wants_weights
from .kernels.state_cache import hold_states
from .masks.masking import AttentionMasks, Mask, MaskBuilder, build_mask, build_masks, build_memory_mask
from .position.hooks import Embedded, Position, PositionState
from .position.token_layout import MaskSizes, Packing


class StackParts(Protocol):
    """The parts of a stack that plans read."""

    config: StackConfig
    layers: nn.ModuleList
    position: Position
    training: bool
    gradient_checkpointing: bool
    forward: Callable[..., object]
    remove_padding: bool | None
    one_product: bool | None
    cudnn_first: bool | None


@dataclass(frozen=True)
class StackInputs:
    """The inputs of a stack's layers, checked; `read` is the number of first tokens that are wanted, None for all."""

    embedded: Embedded
    packing: Packing
    cache: Cache | None
    sizes: MaskSizes
    memory: Memory
    backend: str
    weights: bool = False
    recorded: bool = False
    read: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        stack: StackParts,
        embedded: Embedded,
        position_ids: Tensor | None,
        cache: Cache | None,
        options: dict[str, Any],
    ) -> "StackInputs":
        """Check the inputs, and separate the options of the stack from those of attention backends."""
        config = stack.config
        check_stack_inputs(stack.layers[0], config, embedded.hidden, cache, options)
        backend = attention_backend(config, options)
        check_keywords(type(stack).forward, options, backend)
        memory = Memory(*(options.pop(name, None) for name in MEMORY))
        read = options.pop("tokens_read", None)
        hold_states(config, cache)
        sizes = MaskSizes.of(config, embedded.hidden.shape[1], cache_of_stage(stack.layers, config, cache))
        recomputed = stack.gradient_checkpointing and stack.training  # which would write a cache twice
        given = (None if recomputed else cache, sizes, memory, backend)
        weights = wants_weights(config, options)
        recorded = weights or records_states(config, options)
        return cls(embedded, Packing.of(position_ids, options), *given, weights, recorded, read, options)


MEMORY = ("encoder_hidden_states", "encoder_attention_mask", "encoder_position_embeddings")


class Plan:
    """The plain way through a stack: every token, padding too, and one mask for each pattern."""

    def __init__(self, stack: StackParts, inputs: StackInputs, masks: AttentionMasks | None = None) -> None:
        self.stack, self.config, self.inputs = stack, stack.config, inputs
        self.masks = self.build_masks() if masks is None else masks
        self.positions = self.masks.positions  # (B or 1, T)
        sizes = inputs.sizes
        check_length(self.config, self.positions, sizes.past, sizes.length, inputs.embedded.grid)

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "Plan | None":
        """Return a plan where this way is open and faster, else None."""
        return cls(stack, inputs)

    @property
    def embedded(self) -> Embedded:
        """The tokens that the layers compute."""
        return self.inputs.embedded

    def build_masks(self, build: MaskBuilder = build_mask) -> AttentionMasks:
        """Build the positions and the mask of each pattern."""
        inputs, (hidden, mask, _) = self.inputs, self.inputs.embedded
        positions = inputs.packing.position_ids
        # Serving engines keep the cache and know the sequences of a row; a step that they record reads no values.
        engine = inputs.sizes.cache is None and inputs.backend not in ALL_MASK_ATTENTION_FUNCTIONS
        if engine and mask is None and positions is not None:
            check_position_ids(hidden, positions)
            return AttentionMasks(positions, positions, dict.fromkeys(self.config.layer_masks))
        return build_masks(self.config, hidden, inputs.sizes, mask, inputs.packing, partial(build, inputs.backend))

    def bias(self, pattern: str, layer: int) -> Tensor | None:
        """Return the score bias of the layers of a pattern; `layer` is the first of them."""
        keys, first = self.inputs.sizes.keys(layer)
        return self.stack.position.bias(self.positions, self.masks.key_positions[:, first : first + keys])

    def memory(self) -> Memory:
        """Return the memory of cross-attention, with its finished mask."""
        memory, inputs = self.inputs.memory, self.inputs
        if memory.hidden is None:
            return memory
        given = (self.config, inputs.backend, inputs.embedded.hidden, memory.hidden, cast("Tensor | None", memory.mask))
        return memory._replace(mask=build_memory_mask(*given))

    def contexts(self, hidden: Tensor) -> list[LayerContext]:
        """Return the context of each layer; `hidden` (B, T, D) is the input of the first."""
        inputs, position, grid = self.inputs, self.stack.position, self.embedded.grid
        options = {**inputs.options, "position_ids": self.positions}
        given = (self.memory(), layer_cache(inputs.cache, options), inputs.backend, inputs.weights, None, options)
        project = next(filter(None, (way(self.stack, inputs) for way in PROJECTIONS)), None)
        query_key, vectors = position.query_key(self.embedded._replace(hidden=hidden)), position.vectors(hidden.device)
        contexts: dict[tuple[str, str, bool], LayerContext] = {}
        patterns = self.config.layer_patterns
        masks = self.config.layer_masks if self.config.keeps_state else patterns
        kinds = [(*pair, layer in position.left_out) for layer, pair in enumerate(zip(masks, patterns, strict=True))]
        for layer, kind in enumerate(kinds):
            if kind in contexts:
                continue
            mask, pattern, left_out = kind
            rotation = None if left_out else position.rotation(self.positions, hidden.dtype, pattern, grid)
            bias = None if left_out else self.bias(pattern, layer)
            state = PositionState(rotation, query_key, inputs.memory.position, bias, vectors)
            contexts[kind] = LayerContext(self.mask(mask), state, *given, project)
        return [contexts[kind] for kind in kinds]

    def mask(self, pattern: str) -> Mask:
        """Return the mask of the layers of a pattern."""
        return self.masks.masks[pattern]

    def restore(self, hidden: Tensor) -> Tensor:
        """Return the output at the tokens of the batch: (B, T, D) -> same."""
        return hidden


# Faster ways, asked in order; functions that return {module: its stand-in} for a model.
StandIns = Mapping[nn.Module, Callable[..., Any]]
PLANS: list[type[Plan]] = []
PROJECTIONS: list[Callable[[StackParts, StackInputs], Projection | None]] = []
STAND_INS: list[Callable[[nn.Module], StandIns]] = []
STANDING_IN: ContextVar[StandIns | None] = ContextVar("standing_in", default=None)


def plan_of(stack: StackParts, inputs: StackInputs) -> Plan:
    """Return the first plan whose way is open, else the plain one: the only place that chooses."""
    for way in PLANS:
        if (plan := way.of(stack, inputs)) is not None:
            return plan
    return Plan(stack, inputs)


def way_of(module: nn.Module) -> Callable[..., Any]:
    """Return the stand-in of a module in this thread, or the module itself."""
    if torch.compiler.is_compiling():
        return module
    standing_in = STANDING_IN.get()
    return module if standing_in is None else standing_in.get(module, module)


@contextmanager
def stand_ins(*models: nn.Module | None) -> Iterator[None]:
    """Let faster modules stand in for those of models, whose weights must not change meanwhile."""
    given = [model for model in models if model is not None]
    made = {module: way for model in given for make in STAND_INS for module, way in make(model).items()}
    token = STANDING_IN.set(made)
    try:
        yield
    finally:
        STANDING_IN.reset(token)
