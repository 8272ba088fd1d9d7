"""The two halves of a recurrent encoder-decoder: one reads a text into memory, the other writes with it in view.

Shapes: B batch, T targets, S sources, D hidden_size, M memory_size, P readout_size, R vectors of a cell's state.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ...configuration.configuration_recurrent import QkvRecurrentConfig
from ..base import QkvPreTrainedModel, exactly_one
from ..checks.inputs import check_embeddings, check_marks, check_memory, check_padding_mask, check_shape
from ..checks.keywords import cache_field, check_keywords
from ..frontends import FRONTENDS
from ..kernels.state_cache import State, StateLayer
from .attention_decoder import ATTENTION_DECODERS, READOUTS, AttentionDecoder, last_states
from .cells import CELLS, RecurrentDecoderLayer, RecurrentLayer, StepMode, reading_orders


class RecurrentCache(Cache):
    """The state of each of the decoder's layers (B, R, D), and the keys of the first (B, S, A)."""

    layers: Any

    def __init__(self, num_hidden_layers: int) -> None:
        super().__init__(layers=[StateLayer() for _ in range(num_hidden_layers)])


def check_recurrent_cache(past: Cache, layers: int, rows: int) -> None:
    """Check that a cache is one of this family, made for as many layers and rows; others hold keys, no state."""
    states = [getattr(layer, "keys", None) for layer in past.layers]
    held = {rows if state is None else state.shape[0] for state in states}
    if not isinstance(past, RecurrentCache) or len(states) != layers or held != {rows}:
        raise ValueError(
            f"past_key_values are a {type(past).__name__} of {len(states)} layers and {held} rows, but the model reads "
            f"a RecurrentCache of {layers} layers and the batch has {rows} rows; leave it out, or give that of an "
            "earlier output"
        )


class QkvRecurrentPreTrainedModel(QkvPreTrainedModel):
    """Base of the family: how cells start, and that no attention backend of transformers is used."""

    config: QkvRecurrentConfig
    _supports_flash_attn = False
    _supports_sdpa = False
    _supports_flex_attn = False
    _supports_attention_backend = False
    _can_compile_fullgraph = False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.RNNBase):
            self.init_cell(module)

    def init_cell(self, cell: Any) -> None:
        """Initialise recurrent matrices orthogonal, so that a state keeps its length, and forget gates open.

        Source: Bahdanau et al. 2015, appendix B.1, https://arxiv.org/abs/1409.0473; forget gate: Jozefowicz et al.
            2015, §2.2, https://proceedings.mlr.press/v37/jozefowicz15.html
        """
        size, bias = cell.hidden_size, torch.zeros(cell.bias_ih_l0.shape, dtype=torch.float32)
        gates = [nn.init.orthogonal_(torch.zeros(size, size, dtype=torch.float32)) for _ in range(len(bias) // size)]
        bias[size : 2 * size] = float(cell.vectors - 1)
        init.normal_(cell.weight_ih_l0, std=self.config.initializer_range)
        init.copy_(cell.weight_hh_l0, torch.cat(gates))
        init.copy_(cell.bias_ih_l0, bias)
        init.zeros_(cell.bias_hh_l0)


# trf-ignore: TRF013  each half calls post_init, last
class RecurrentHalf(QkvRecurrentPreTrainedModel):
    """Embed the tokens of one half: `input_ids -> TokenFrontend -> dropout`."""

    _fsdp_plan = {"embed_tokens": "free_full_weight"}

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.embed_tokens = FRONTENDS[config.frontend](config)
        self.embed_dropout = nn.Dropout(config.embedding_dropout)

    def embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None, others: Mapping[str, object]) -> Tensor:
        """Return embeddings (B, T, D) of exactly one of the two, after checking them and the names of other inputs."""
        exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        check_keywords(type(self).forward, others)
        check_embeddings(hidden, self.config.embedding_width)
        return self.embed_dropout(hidden)


class QkvRecurrentEncoder(RecurrentHalf):
    """The encoder half: `input_ids -> TokenFrontend -> RecurrentLayers -> last_hidden_state (B, S, M)`."""

    _no_split_modules = ["RecurrentLayer"]
    # Weights of the decoder stay with the model: keys of its first layer are computed before its call gathers weights.
    _fsdp_plan = {**RecurrentHalf._fsdp_plan, "layers.*": "free_full_weight"}
    _can_record_outputs = {"hidden_states": OutputRecorder(RecurrentLayer, num_hidden_layers_key="num_encoder_layers")}

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        widths = [config.embedding_size] + [config.memory_size] * (int(config.num_encoder_layers) - 1)
        self.layers = nn.ModuleList(RecurrentLayer(config, width) for width in widths)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: object,
    ) -> BaseModelOutput:
        """Encode one of `input_ids` and `inputs_embeds`; padding may stand anywhere, its outputs are zero."""
        hidden = self.embed(input_ids, inputs_embeds, kwargs)
        keep = real(attention_mask, hidden, "attention_mask")
        orders = reading_orders(keep)
        for layer in self.layers:
            hidden = layer(hidden, *orders)
        return BaseModelOutput(last_hidden_state=hidden.masked_fill(~keep[..., None], 0))


def real(mask: Tensor | None, tokens: Tensor, name: str) -> Tensor:
    """Return booleans (B, S) that mark real tokens, all of them without a mask."""
    if mask is None:
        return tokens.new_ones(tokens.shape[:2], dtype=torch.bool)
    check_shape(name, mask, tokens.shape[:2], "tokens")
    check_marks(name, mask)
    return mask.to(tokens.device, torch.bool)


class QkvRecurrentDecoder(RecurrentHalf):
    """The decoder half: `decoder_input_ids, memory -> reader -> layers -> readout -> last_hidden_state (B, T, P)`.

    All layers start from the last state of the encoder's backward direction, or of its only one.
    """

    _can_record_outputs = {
        "hidden_states": [OutputRecorder(AttentionDecoder), OutputRecorder(RecurrentDecoderLayer)],
        "cross_attentions": OutputRecorder(AttentionDecoder, index=3),
    }

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.vectors = CELLS[config.cell].vectors
        self.bridge = nn.Linear(
            int(config.encoder_hidden_size), config.num_hidden_layers * self.vectors * config.hidden_size
        )
        above = (RecurrentDecoderLayer(config) for _ in range(config.num_hidden_layers - 1))
        self.layers = nn.ModuleList([ATTENTION_DECODERS[config.attention](config), *above])
        self.readout = READOUTS[config.readout](config)
        self._no_split_modules = sorted({type(layer).__name__ for layer in self.layers})
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        **kwargs: object,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode; `attention_mask` covers tokens in the cache too; padding may stand anywhere and changes no state."""
        hidden = self.embed(input_ids, inputs_embeds, kwargs)
        memory = check_memory(encoder_hidden_states, hidden, self.config.memory_size, "memory_size")
        memory_keep = real(encoder_attention_mask, memory, "encoder_attention_mask")
        keep, cache = self.new_token_mask(attention_mask, hidden, past_key_values), past_key_values
        hidden = self.run(hidden, memory, memory_keep, keep, cache)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, **cache_field(cache))

    def new_token_mask(self, mask: Tensor | None, hidden: Tensor, cache: Cache | None) -> Tensor | None:
        """Cut the mask (B, T) of the new tokens from that of all there were; None when none is padding."""
        past = 0
        if cache is not None:
            check_recurrent_cache(cache, self.config.num_hidden_layers, hidden.shape[0])
            past = cache.get_seq_length()
        if mask is None:
            return None
        check_padding_mask(mask, hidden, past, hidden.shape[1])
        return mask[:, -hidden.shape[1] :].to(hidden.device, torch.bool)

    def run(self, embedded: Tensor, memory: Tensor, memory_keep: Tensor, keep: Tensor | None, cache: Any) -> Tensor:
        """Compute the input of the head from embeddings: (B, T, embedding_size) -> (B, T, P)."""
        keys, before = self.begin(memory, memory_keep, cache)
        mode = StepMode(keep, cache is not None and keep is not None)
        reader, *above = self.layers
        hidden, state, contexts, _ = reader(embedded, before[0], mode, memory, keys, memory_keep)
        states: list[State] = [(state, keys)]
        for layer, state in zip(above, before[1:], strict=True):
            hidden, state = layer(hidden, state, mode)
            states.append((state,))
        if cache is not None:
            for held, each in zip(cache.layers, states, strict=True):
                held.store(each, embedded.shape[1])
        return self.readout(hidden, embedded, contexts)

    def begin(self, memory: Tensor, keep: Tensor, cache: Any) -> tuple[Tensor, list[Tensor]]:
        """Return the keys of all steps, and each layer's state (B, R, D): from the cache, or made from memory."""
        if cache is not None and cache.get_seq_length():
            return cache.layers[0].values, [layer.keys for layer in cache.layers]
        reader: Any = self.layers[0]
        width = int(self.config.encoder_hidden_size)
        ends = last_states(memory, keep, width)[:, -width:]
        states = torch.tanh(self.bridge(ends)).unflatten(-1, (-1, self.vectors, self.config.hidden_size)).unbind(1)
        return reader.keys(memory, keep), list(states)
