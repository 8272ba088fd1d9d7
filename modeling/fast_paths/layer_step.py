"""A layer's part of a step of generation: one token of each row, in a third of the operations of its modules.

Shapes: B batch, S keys and memory, D hidden_size, H heads, G key-value heads, K head_dim.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import GELUActivation, GELUTanh, SiLUActivation
from transformers.cache_utils import Cache, EncoderDecoderCache

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_stack import BranchConfig, StackConfig
from ..attention import CrossAttention, SelfAttention
from ..context import LayerContext
from ..experts import FEED_FORWARDS
from ..layer import LAYERS, Layer, ParallelLayer, SharedNormLayer
from ..normalization import NORMS, Residual
from ..position.hooks import PositionState
from .one_product import placed_heads
from .weight_copies import is_bare, product_of

Function = Callable[[Tensor], Tensor]
# Fields that a step computes, or that act outside of it: in training, in a plan, before and after the layers. With any
# other away from its default, the layers compute themselves.
COMPUTED = frozenset(
    "num_hidden_layers pattern sliding_window dilation block_size fixed_columns num_random_blocks random_blocks_seed "
    "num_global_tokens grid_kernel hidden_size num_attention_heads num_key_value_heads head_dim attention_bias "
    "query_key_norm attention_multiplier attention_dropout position max_position_embeddings position_offset "
    "rope_parameters relative_attention_num_buckets relative_attention_max_distance kernel feature_map "
    "intermediate_size hidden_act feed_forward mlp_bias norm norm_eps norm_position norm_gain final_norm norm_bias "
    "residual_multiplier embedding_norm embedding_dropout residual_dropout activation_dropout drop_path_rate "
    "layerdrop float16_clamp initializer_range final_dropout parallel_residual layer_scale".split()
)


class LayerStep:
    """Compute a layer for one token of each row after others that are cached: (B, D) -> (B, D).

    Maps that read the same input are one, and hardly anything but functions is called: the weights push all else out of
    the caches of the processor.
    """

    def __init__(self, config: StackConfig, layer: Layer, wide: int) -> None:
        self.parallel, self.shared = isinstance(layer, ParallelLayer), isinstance(layer, SharedNormLayer)
        self.self_attention = SelfAttentionStep(config, cast(SelfAttention, layer.self_attn), wide)
        self.mlp = mlp_step(layer.mlp, wide)
        self.first, self.last = ResidualStep(config, layer.self_attn_residual), ResidualStep(config, layer.mlp_residual)
        self.cross_attention: CrossAttentionStep | None = None
        if layer.cross_attn is not None and layer.cross_attn_residual is not None:
            self.cross_attention = CrossAttentionStep(config, layer.cross_attn, wide)
            self.middle = ResidualStep(config, layer.cross_attn_residual)

    def __call__(self, hidden: Tensor, context: LayerContext) -> Tensor:
        cache, mask = cast(Cache, context.cache), cast("Tensor | None", context.mask)
        read = self.first.norm(hidden)
        branch = self.self_attention(read, mask, context.position, cache)
        after = self.first.add(hidden, branch)
        if self.cross_attention is not None:
            memory = cast("tuple[Tensor, Tensor | None, None]", context.memory)
            branch = self.cross_attention(self.middle.norm(after), *memory[:2], cache)
            after = self.middle.add(after, branch)
        widened = read if self.shared else self.last.norm(hidden if self.parallel else after)
        return self.last.add(after, self.mlp(widened))


class ResidualStep:
    """Compute a residual connection without dropout."""

    def __init__(self, config: StackConfig, residual: Residual) -> None:
        normed = norm_step(config, residual.norm)
        self.norm: Function = normed if residual.norm_first else unchanged
        self.norm_after: Function = normed if residual.norm_last else unchanged
        self.change: Function = residual.change if residual.changes else unchanged
        self.add: Callable[[Tensor, Tensor], Tensor] = self.add_and_norm
        if not residual.norm_last and not residual.changes:
            self.add = torch.add

    def add_and_norm(self, hidden: Tensor, branch: Tensor) -> Tensor:
        """Add the output of a branch."""
        return self.norm_after(hidden + self.change(branch))


class SelfAttentionStep:
    """Compute self-attention for one token of each row after others that are cached."""

    def __init__(self, config: StackConfig, attention: SelfAttention, wide: int) -> None:
        self.project = product_of(attention, (attention.q_proj, attention.k_proj, attention.v_proj), wide)
        self.project_out = product_of(attention.o_proj, (attention.o_proj,), wide)
        self.index, self.head_dim, self.scale = attention.layer_idx, attention.head_dim, attention.scaling
        heads, groups = (each.out_features // self.head_dim for each in (attention.q_proj, attention.k_proj))
        self.sizes = (heads, groups, groups)
        norms = norm_step(config, attention.q_norm), norm_step(config, attention.k_norm)
        self.norms = norms if attention.q_norm is not None else None

    def __call__(self, hidden: Tensor, mask: Tensor | None, state: PositionState, cache: Cache) -> Tensor:
        heads = self.project(hidden).view(hidden.shape[0], -1, 1, self.head_dim)
        query, key, value = placed_heads(heads, self.sizes, self.norms, state.rotation)
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        key, value = cache.update(key, value, self.index)
        if state.bias is not None:
            mask = with_mask(state.bias, mask)
        return self.project_out(mix_heads(query, key, value, mask, self.scale))


class CrossAttentionStep:
    """Compute cross-attention for one token of each row."""

    def __init__(self, config: StackConfig, attention: CrossAttention, wide: int) -> None:
        self.attention, self.head_dim, self.scale = attention, attention.head_dim, attention.scaling
        self.project = product_of(attention.q_proj, (attention.q_proj,), wide)
        self.project_out = product_of(attention.o_proj, (attention.o_proj,), wide)
        self.norm = norm_step(config, attention.q_norm)

    def __call__(self, hidden: Tensor, memory: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
        key, value = self.attention.cached_key_value(memory, None, cache)
        query = self.norm(self.project(hidden).view(hidden.shape[0], -1, 1, self.head_dim))
        return self.project_out(mix_heads(query, key, value, mask, self.scale))


def mix_heads(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Mix values by PyTorch's kernel: (B, H, 1, K), 2 x (B, G, S, K) -> (B, H * K)."""
    rows, groups = key.shape[:2]
    if groups < query.shape[1]:  # queries that share a key stand where several tokens would
        query = query.reshape(rows, groups, -1, query.shape[-1])
        if mask is not None and mask.shape[1] > 1:
            mask = mask.reshape(len(mask), groups, -1, mask.shape[-1])
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale).reshape(rows, -1)


def with_mask(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Join a score bias and a mask, with the least number where the mask is False: (B or 1, H, 1, S)."""
    if mask is None:
        return bias
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype == torch.bool else bias + mask


def mlp_step(mlp: Any, wide: int) -> Function:
    """Return a function that computes a feed-forward network, gated, mixed or neither: (B, D) -> (B, D)."""
    if not hasattr(mlp, "down_proj"):
        return mixture_step(mlp)
    down, act = product_of(mlp.down_proj, (mlp.down_proj,), wide), SHORT_ACTIVATIONS.get(type(mlp.act_fn), mlp.act_fn)
    if not hasattr(mlp, "gate_proj"):
        up = product_of(mlp.up_proj, (mlp.up_proj,), wide)
        return lambda hidden: down(act(up(hidden)))
    both = product_of(mlp, (mlp.gate_proj, mlp.up_proj), wide)

    def gated(hidden: Tensor) -> Tensor:
        gate, units = both(hidden).chunk(2, -1)
        return down(act(gate) * units)

    return gated


def mixture_step(mlp: Any) -> Function:
    """Return a function that computes a mixture of experts: of one row on a CPU by maps taken apart before."""
    if mlp.experts.down_proj.device.type != "cpu" or mlp.experts.down_proj.dtype != torch.float32:
        return mlp
    maps = mlp.experts.maps()

    def mixed(hidden: Tensor) -> Tensor:
        if len(hidden) > 1:
            return mlp(hidden)
        _, weights, index = mlp.gate(hidden)
        return mlp.with_shared(mlp.experts.of_one_token(hidden, index, weights, maps), hidden)

    return mixed


def norm_step(config: StackConfig, norm: nn.Module | None) -> Function:
    """Return a function that computes a norm, the identity without one: (B, D) -> (B, D)."""
    if norm is None or type(norm) is nn.Identity:
        return unchanged
    if type(norm) is not NORMS[config.norm] or (norm.weight is None and config.norm == "rms"):
        return norm
    if not isinstance(norm, nn.LayerNorm):
        return rms_norm_step(norm)
    size, weight = norm.normalized_shape, norm.weight
    return partial(torch.layer_norm, normalized_shape=size, weight=weight, bias=norm.bias, eps=norm.eps)


def rms_norm_step(norm: Any) -> Function:
    """Return a function that computes an RMS norm, of one row in two operations instead of PyTorch's twelve."""
    weight, eps, size, zeros = norm.weight, norm.eps, len(norm.weight), torch.zeros_like(norm.weight)[None]

    def normed(hidden: Tensor) -> Tensor:
        if hidden.numel() > size:
            return torch.rms_norm(hidden, (size,), weight, eps)
        row = hidden.view(-1)
        square = torch.dot(row, row).item() / size + eps
        return torch.addcmul(zeros, hidden, weight, value=square**-0.5 if square else math.inf)

    return normed if weight.dtype == torch.float32 and weight.device.type == "cpu" else norm


def unchanged(hidden: Tensor) -> Tensor:
    """Return the input."""
    return hidden


# The functions behind modules of transformers.
SHORT_ACTIVATIONS: dict[type, Function] = {
    GELUActivation: F.gelu,
    GELUTanh: partial(F.gelu, approximate="tanh"),
    SiLUActivation: F.silu,
    nn.SiLU: F.silu,
    nn.ReLU: F.relu,
}


def layer_steps(config: StackConfig, layers: Sequence[nn.Module], wide: int) -> list[LayerStep]:
    """Return a step for each layer; none unless all are ours, with nothing around them, for they share a cache."""
    ours = [cast(Layer, layer) for layer in layers if is_ours(config, layer)]
    return [LayerStep(config, layer, wide) for layer in ours] if len(ours) == len(layers) else []


def is_ours(config: StackConfig, layer: nn.Module) -> bool:
    """Return True where a layer and its modules are stock ones, to which nothing was added, and no field is new."""
    ours = (SelfAttention, CrossAttention, *FEED_FORWARDS.values(), Residual)
    known = type(layer) in LAYERS.values() and all(type(each) in ours for each in layer.children())
    stock = all(type(each) is nn.Linear for name, each in layer.named_modules() if name.endswith("_proj"))
    stock = stock and not config.attention_sinks
    return known and stock and all(map(is_bare, layer.modules())) and not layer.training and asks_no_more(config)


def asks_no_more(config: StackConfig) -> bool:
    """Return True where every field of layers that a step does not compute is at its default."""
    known = COMPUTED.union(each.name for each in fields(QkvConfig))
    if config.query_key_norm == "head_after_rotation":
        return False
    return all(each.name in known or getattr(config, each.name) == each.default for each in fields(BranchConfig))
