"""The loop every family runs: frontend -> positions -> layers -> norm. Read this page first.

Shapes: B batch, T tokens, S keys, D hidden_size.
"""

from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.utils.output_capturing import OutputRecorder

from ..configuration.configuration_stack import StackConfig
from .attention import Attention
from .base import QkvPreTrainedModel
from .check import refuse_misfits, refuse_too_long
from .frontend import FRONTENDS
from .kernel import backend
from .layer import Layer
from .normalization import NORMS
from .pattern import Mask, Span, Visibility, paged, see, see_memory
from .position import POSITIONS


# trf-ignore: TRF013  each family calls post_init, last
class Stack(QkvPreTrainedModel):
    """A frontend, a position encoding, identical layers and a last norm; every axis is a word in the config.

    The families are stacks, so their parameters are `embed_tokens`, `position`, `layers` and `norm` and nothing wraps
    them: the names on which transformers' pipeline parallelism and sharding plans rely.

    Source: Vaswani et al. 2017, §3, figure 1, https://arxiv.org/abs/1706.03762
    Shapes: hidden (B, T, D) -> (B, T, D)
    """

    config: Any
    _no_split_modules = ["Layer"]
    _can_record_outputs = {
        "hidden_states": Layer,
        "attentions": OutputRecorder(Attention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.embed_tokens: Any = FRONTENDS[config.frontend](config)
        self.main_input_name = FRONTENDS[config.frontend].main_input_name
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
        hidden: Tensor,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        grid: tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Embeddings in, last hidden states out: (B, T, D) -> (B, T, D)."""
        refuse_misfits(self, hidden, past_key_values, kwargs)
        kwargs["attention_implementation"] = backend(self.config, kwargs)
        span = Span.of(self.config, hidden.shape[1], past_key_values)
        seen = self.visibility(hidden, span, attention_mask, position_ids, **kwargs)
        refuse_too_long(self.config, seen.positions, span.past, span.length, grid)
        memory = self.memory(hidden, kwargs)
        hidden = self.position.embed(self.project_in(hidden), seen.positions, grid)
        hidden = self.embed_projection(self.embed_dropout(self.embed_norm(hidden)))
        rotations: Any = {word: self.position.rotation(seen.positions, hidden.dtype, word) for word in seen.masks}
        # CODEPATH: DETR, whose positions are added in every layer
        if self.config.position in ("sinusoidal_2d", "sinusoidal_2d_and_input", "slots"):
            rotations = dict.fromkeys(seen.masks, kwargs.pop("position_embeddings"))
        biases = self.biases(seen, span)
        kwargs |= {"past_key_values": past_key_values, "position_ids": seen.positions}
        for layer, pattern in zip(self.layers, self.config.layer_patterns, strict=True):
            # What has gradients goes by place: reentrant checkpointing does not look at keywords.
            hidden = layer(hidden, seen.masks[pattern], rotations[pattern], biases[pattern], *memory, **kwargs)
        return self.project_out(self.final_dropout(self.norm(hidden)))

    def visibility(
        self, hidden: Tensor, span: Span, attention_mask: Any, position_ids: Tensor | None, **kwargs: Any
    ) -> Visibility:
        """What each query sees; a dict is what `create_masks_for_generate` made of it before."""
        position_ids = None if position_ids is None else position_ids.long()
        if kwargs.get("cache") is not None and position_ids is not None:
            return paged(self.config, attention_mask, position_ids)
        if not isinstance(attention_mask, dict):
            return see(self.config, hidden, span, attention_mask, position_ids, **kwargs)
        masks = dict(attention_mask)
        keys = masks.pop("key_positions")
        positions = keys.index_select(1, span.index(hidden.device)) if position_ids is None else position_ids
        return Visibility(positions, keys, masks)

    def biases(self, seen: Visibility, span: Span) -> dict[str, Tensor | None]:
        """The position bias for the keys of each pattern: layers with a window hold fewer keys."""
        layers = {pattern: layer for layer, pattern in reversed(list(enumerate(self.config.layer_patterns)))}
        windows = {pattern: span.window(layer) for pattern, layer in layers.items()}
        return {
            pattern: self.position.bias(seen.positions, seen.key_positions[:, first : first + keys])
            for pattern, (keys, first) in windows.items()
        }

    def memory(self, hidden: Tensor, kwargs: dict[str, Any]) -> tuple[Tensor | None, Mask]:
        """What cross-attention reads and the mask over it, taken out of `kwargs`; both None without memory."""
        memory = kwargs.pop("encoder_hidden_states", None)
        keep = kwargs.pop("encoder_attention_mask", None)
        if not getattr(self.config, "cross_attention", False):
            return None, None
        return memory, None if memory is None else see_memory(kwargs["attention_implementation"], hidden, memory, keep)
