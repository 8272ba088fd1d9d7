"""The gated delta rule behind a short convolution, with value heads that share queries and keys.

Shapes: B batch, T tokens, D hidden_size, C channels of queries, keys and values, k taps, H value heads, V width of one.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...configuration.configuration_decoder import QkvDecoderConfig
from ..context import NO_CONTEXT, LayerContext
from ..feed_forward import make_activation
from ..masks.masking import TokenMask
from ..normalization import RMSNorm
from .gated_delta import DeltaInputs, gated_delta_rule, initial_memories, shares, unit_length
from .state_cache import state_layer


def short_convolution(
    values: Tensor, weight: Tensor, mask: TokenMask | None, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mix each channel over the last k real tokens of a document; return it, and the k - 1 tokens for the next call.

    Real tokens stand first meanwhile, so that none reads padding, wherever it is.

    Source: Poli et al. 2023, Hyena Hierarchy, §3.1, https://arxiv.org/abs/2302.10866
    Shapes: values (B, T, C), weight (C, 1, k), before (B, k - 1, C) -> (B, T, C), (B, k - 1, C)
    """
    padding, documents = (None, None) if mask is None else (mask.padding, mask.documents)
    length, past = values.shape[1], weight.shape[-1] - 1
    order = torch.arange(length, device=values.device).expand(len(values), -1)
    real = torch.full_like(order[:, :1], length)
    if padding is not None:
        order, real = padding.int().argsort(dim=1, descending=True, stable=True), padding.sum(1, keepdim=True)
    before = values.new_zeros(len(values), past, values.shape[2]) if before is None else before
    joined = torch.cat((before, values.gather(1, order[..., None].expand_as(values))), dim=1)
    kept = real + torch.arange(past, device=values.device)
    end = joined.gather(1, kept[..., None].expand(-1, -1, joined.shape[-1]))
    numbers = None
    if documents is not None:
        numbers = F.pad(documents.expand_as(order).gather(1, order), (past, 0), value=-1)
        end = end * (numbers.gather(1, kept) == numbers.gather(1, real + past - 1))[..., None]
    mixed = torch.zeros_like(values, dtype=torch.promote_types(values.dtype, torch.float32))
    for tap in range(past + 1):
        part = joined[:, tap : tap + length].to(mixed.dtype)
        if numbers is not None:
            part = part * (numbers[:, tap : tap + length] == numbers[:, past:])[..., None]
        mixed = torch.addcmul(mixed, part, weight[:, 0, tap].to(mixed.dtype))
    mixed = mixed.to(values.dtype)
    return mixed.gather(1, order.argsort(dim=1)[..., None].expand_as(mixed)), end


class GatedDeltaNet(nn.Module):
    """Read states as `GatedDeltaAttention` does, in the paper's block: convolution, more value heads than keys, gate.

    Source: Yang, Kautz & Hatamizadeh 2024, Gated Delta Networks, §3.3, figure 1, https://arxiv.org/abs/2412.06464;
        value heads that share a key: Qwen Team 2025, Qwen3-Next, its code (`Qwen3NextGatedDeltaNet`)
    Shapes: (B, T, D) -> (B, T, D) and no weights
    """

    def __init__(self, config: QkvDecoderConfig, layer_index: int) -> None:
        super().__init__()
        self.layer_idx, self.counts = layer_index, (config.linear_num_key_heads, config.linear_num_value_heads)
        self.sizes = [config.linear_key_width, config.linear_key_width, config.linear_value_width]
        width, heads = config.hidden_size, config.linear_num_value_heads
        channels, taps = sum(self.sizes), config.linear_conv_kernel_dim
        self.qkv_proj = nn.Linear(width, channels, bias=False)
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels, bias=False)
        self.act_fn = make_activation(config.hidden_act)
        self.decay_proj, self.rate_proj = (nn.Linear(width, heads, bias=False) for _ in range(2))
        self.decay_log, self.decay_bias = (nn.Parameter(torch.zeros(heads)) for _ in range(2))
        self.out_norm = RMSNorm(config, config.linear_value_head_dim)
        self.gate_proj = nn.Linear(width, config.linear_value_width, bias=False)
        self.out_proj = nn.Linear(config.linear_value_width, width, bias=False)

    def init_parameters(self, std: float) -> None:
        """Let heads start with memories of one to a thousand tokens."""
        initial_memories(self.decay_log, self.decay_bias)

    def forward(self, hidden: Tensor, context: LayerContext = NO_CONTEXT) -> tuple[Tensor, None]:
        mask, gates = cast("TokenMask | None", context.mask), (self.decay_proj(hidden), self.rate_proj(hidden))
        projected, open_by = self.qkv_proj(hidden), self.gate_proj(hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            mixed = self.mix(projected, shares(self, *gates, mask), context)
            normed = self.out_norm(mixed.to(hidden.dtype)).flatten(2)
            gated = normed * F.silu(open_by.to(torch.promote_types(open_by.dtype, torch.float32)))
        return self.out_proj(context.select(gated.to(hidden.dtype))), None

    def mix(self, projected: Tensor, parts: tuple[Tensor, Tensor], context: LayerContext) -> Tensor:
        """Let queries read the states after their tokens, and store the last: (B, T, C) -> (B, T, H, V)."""
        mask, layer = cast("TokenMask | None", context.mask), state_layer(context.cache, self.layer_idx)
        before = (None, None) if layer is None or layer.state is None else layer.state
        mixed, end = short_convolution(projected, self.conv.weight, mask, before[1])
        precise = self.act_fn(mixed).to(torch.promote_types(mixed.dtype, torch.float32))
        keys, values = self.counts
        query, key, value = (
            part.unflatten(-1, (count, -1)).transpose(1, 2)
            for part, count in zip(precise.split(self.sizes, dim=-1), (keys, keys, values), strict=True)
        )
        query, key = (unit_length(each).repeat_interleave(values // keys, dim=1) for each in (query, key))
        query = query * key.shape[-1] ** -0.5
        documents = None if mask is None else mask.documents
        read, state = gated_delta_rule(query.unsqueeze(2), DeltaInputs(key, value, *parts), documents, before[0])
        if layer is not None:
            layer.store((state, end), projected.shape[1])
        return read.squeeze(2).transpose(1, 2)
