"""The stack every family is: frontend -> positions -> layers -> norm. Read this page first.

Shapes: B batch, T tokens, S keys, D hidden_size.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.utils.output_capturing import OutputRecorder

from ..configuration.configuration_stack import StackConfig
from .attention import Attention
from .base import QkvPreTrainedModel
from .checks.inputs import check_length, check_stack_inputs
from .checks.keywords import check_keywords, layer_cache
from .fast_paths.first_tokens import read_index, read_tokens
from .fast_paths.unpadding import keep_padding, remove_padding
from .frontends import FRONTENDS
from .kernel import attention_backend
from .kernels.state_cache import hold_states
from .layer import Layer
from .masking import AttentionMasks
from .normalization import NORMS
from .pipeline_stage import cache_of_stage, is_elsewhere
from .position import POSITIONS
from .position.hooks import Embedded, PositionState
from .position.token_layout import MaskSizes, first_layers


# trf-ignore: TRF013  each family calls post_init, last
class Stack(QkvPreTrainedModel):
    """A frontend, a position encoding, identical layers and a last norm; every axis is a word in the config.

    The families are stacks, so their parameters are `embed_tokens`, `position`, `layers` and `norm` and nothing wraps
    them: the names on which transformers' pipeline parallelism and sharding plans rely.

    Source: Vaswani et al. 2017, §3, figure 1, https://arxiv.org/abs/1706.03762
    Shapes: hidden (B, T, D) -> (B, T, D)
    """

    config: StackConfig
    frontends: ClassVar[dict[str, Callable[..., nn.Module]]] = FRONTENDS
    _no_split_modules = ["Layer"]
    _can_record_outputs = {
        "hidden_states": Layer,
        "attentions": OutputRecorder(Attention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.embed_tokens: Any = self.frontends[config.frontend](config)
        self.position = POSITIONS[config.position](config)
        given = config.embedding_width
        width = config.position_width
        inner = config.hidden_size
        outer = config.output_width
        self.project_in = nn.Linear(given, width, bias=False) if given != width else nn.Identity()
        self.embed_norm = NORMS[config.norm](config, width) if config.embedding_norm else nn.Identity()
        self.embed_dropout = nn.Dropout(config.embedding_dropout)
        self.embed_projection = nn.Linear(width, inner) if width != inner else nn.Identity()
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.num_hidden_layers))
        self.norm = NORMS[config.norm](config) if config.final_norm else nn.Identity()
        self.final_dropout = nn.Dropout(config.final_dropout)
        self.project_out = nn.Linear(inner, outer, bias=False) if inner != outer else nn.Identity()
        self.gradient_checkpointing = False

    def run(
        self,
        embedded: Embedded,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        tokens_read: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Run the layers on embedded tokens: (B, T, D) -> (B, T, D), or (B, tokens_read, D) where that is less work.

        The mask of `embedded` may also be a finished one, or what `generate` and continuous batching prepared.
        """
        check_stack_inputs(self, self.config, embedded.hidden, past_key_values, kwargs)
        backend = kwargs["attention_implementation"] = attention_backend(self.config, kwargs)
        check_keywords(type(self).forward, kwargs, backend)
        hold_states(self.config, past_key_values)
        memory, memory_mask = kwargs.pop("encoder_hidden_states", None), kwargs.pop("encoder_attention_mask", None)
        cache = cache_of_stage(self.layers, self.config.layer_patterns, past_key_values)
        sizes = MaskSizes.of(self.config, embedded.hidden.shape[1], cache)
        given = (embedded, sizes, position_ids, (memory, memory_mask))
        inputs = remove_padding(self, *given, **kwargs) or keep_padding(self.config, *given, **kwargs)
        embedded, masks = inputs.embedded, inputs.masks
        check_length(self.config, masks.positions, sizes.past, sizes.length, embedded.grid)
        hidden: Any = self.first_input(embedded, masks.positions)
        states = self.position_states(
            embedded._replace(hidden=hidden), masks, sizes, kwargs.pop("encoder_position_embeddings", None)
        )
        kwargs |= {"past_key_values": layer_cache(past_key_values, kwargs), "position_ids": masks.positions}
        context = [(masks.masks[pattern], states[pattern]) for pattern in self.config.layer_patterns]
        index = read_index(self.config, inputs, tokens_read, kwargs["attention_implementation"])
        if index is not None and tokens_read:
            context[-1] = read_tokens(*context[-1], index, tokens_read)
        # Assisted decoding by early exit sets fewer layers in the config for a while.
        for layer, (mask, state) in zip(self.layers[: len(context)], context, strict=True):
            # What has gradients goes by place: reentrant checkpointing does not look at keywords.
            hidden = layer(hidden, mask, *inputs.memory, *state, **kwargs)
        if not is_elsewhere(self.layers[-1]):
            hidden = self.project_out(self.final_dropout(self.norm(hidden)))
        return inputs.restore(hidden) if index is None else hidden.view(len(given[0].hidden), tokens_read, -1)

    def first_input(self, embedded: Embedded, positions: Tensor) -> Tensor:
        """Return the input of the first layer; a later stage of a pipeline is given what its own first layer reads."""
        if is_elsewhere(self.layers[0]):
            return embedded.hidden
        hidden = self.position.embed(embedded._replace(hidden=self.project_in(embedded.hidden)), positions)
        hidden = self.embed_norm(hidden)
        return self.embed_projection(self.embed_dropout(hidden))

    def position_states(
        self, embedded: Embedded, masks: AttentionMasks, sizes: MaskSizes, memory_key: Tensor | None
    ) -> dict[str, PositionState]:
        """Ask the position encoding what it adds in layers of each pattern; those with a window hold fewer keys."""
        query_key = self.position.query_key(embedded)
        states = {}
        for pattern, layer in first_layers(self.config).items():
            rotation = self.position.rotation(masks.positions, embedded.hidden.dtype, pattern)
            bias = self.position.bias(*masks.compared(sizes, pattern, layer))
            rows = masks.compared_rows(pattern)
            rows_bias = None if rows is None else self.position.bias(*rows)
            states[pattern] = PositionState(rotation, query_key, memory_key, bias, rows_bias)
        return states
