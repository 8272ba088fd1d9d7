"""The softmax kernel: the formula of attention, and which backend of transformers computes it.

Shapes: B batch, T queries, S keys, H heads, G key-value heads, K head_dim.
"""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..configuration.axes import BIAS_POSITIONS, MASKLESS_PATTERNS
from ..configuration.configuration_base import QkvConfig
from ..configuration.configuration_stack import StackConfig
from .masks.masking import Mask, SparseMask

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
# Backends of transformers that take score biases and masks.
COMPLETE_BACKENDS = ("eager", "sdpa", "flex_attention")


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: object,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(q k^T * scaling + bias) v, the only backend that can return the weights; `s_aux` are sinks (H,).

    A bound on scores (`softcap`) comes before their bias, as in flex attention.

    Source: Vaswani et al. 2017, Attention Is All You Need, §3.2.1, eq. 1, https://arxiv.org/abs/1706.03762
    Shapes: (B, H, T, K), (B, G, S, K), (B, G, S, K) -> (B, T, H, K) and weights (B, H, T, S)
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = query * scaling @ key.transpose(-1, -2)  # a large product in half precision would be infinite
    scores = soft_cap(scores, softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    precise = torch.promote_types(scores.dtype, torch.float32)
    if s_aux is not None:
        scores = torch.cat((scores, s_aux.to(scores)[:, None, None].expand(len(scores), -1, scores.shape[2], 1)), -1)
    weights = scores.softmax(-1, dtype=precise).to(query.dtype)[..., : key.shape[2]]
    weights = F.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def soft_cap(scores: Tensor, cap: float | None) -> Tensor:
    """Let scores or logits s approach a bound c as c·tanh(s/c), where there is one.

    Source: Gemma Team 2024, Gemma 2, §2, https://arxiv.org/abs/2408.00118
    """
    return scores if cap is None else torch.tanh(scores / cap) * cap


def by_mask(attend: AttentionFunction, mask: Mask) -> AttentionFunction:
    """Return an attention function, or for a sparse mask the mask's function, which calls it in parts."""
    if isinstance(mask, SparseMask):
        return partial(mask.attend, attend)
    dense_flex = isinstance(mask, Tensor) and attend is ALL_ATTENTION_FUNCTIONS.get("flex_attention")
    return partial(attend_by_bias, attend) if dense_flex else attend


def with_sinks(attend: AttentionFunction, sinks: Tensor) -> AttentionFunction:
    """Return an attention function with a logit more for each head (H,), which those but sdpa's take as an option."""
    is_sdpa = attend is ALL_ATTENTION_FUNCTIONS.get("sdpa")
    return partial(attend_beside_sink, attend, sinks) if is_sdpa else partial(attend, s_aux=sinks)


def attend_beside_sink(
    attend: AttentionFunction,
    sinks: Tensor,
    module: nn.Module,
    *heads: Tensor,
    position_bias: Tensor | None = None,
    **options: object,
) -> tuple[Tensor, Tensor | None]:
    """Attend with a key and a value of zeros more, whose score is the sink.

    Shapes: sinks (H,), (B, H, T, K), 2 x (B, G, S, K), mask and bias (B or 1, H or 1, T or 1, S) -> (B, T, H, K)
    """
    query, key, value, mask = heads
    shape = (*query.shape[:3], key.shape[2])
    if mask is None and module.is_causal and shape[2] > 1:  # without a mask sdpa would hide the last key, too
        mask = torch.ones(shape[2:], dtype=torch.bool, device=query.device).tril()[None, None]
    mask = None if mask is None else F.pad(mask, (0, 1), value=float(mask.dtype == torch.bool))
    bias = query.new_zeros(()) if position_bias is None else position_bias
    bias = torch.cat((bias.expand(shape), sinks.to(query)[:, None, None].expand(*shape[:3], 1)), -1)
    key, value = (F.pad(each, (0, 0, 0, 1)) for each in (key, value))
    return attend(module, query, key, value, mask, position_bias=bias, **options)


def attend_by_bias(
    attend: AttentionFunction, module: nn.Module, *heads: Tensor, position_bias: Tensor | None = None, **options: object
) -> tuple[Tensor, Tensor | None]:
    """Attend with a dense mask as part of the score bias, for flex would add booleans and the mask of one head alone.

    Shapes: (B, H, T, K), 2 x (B, G, S, K), mask and bias (B or 1, H or 1, T or 1, S) -> (B, T, H, K), weights or None
    """
    *heads, mask = heads  # type: ignore[assignment]  # a list
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=heads[0].dtype).masked_fill(~mask, torch.finfo(heads[0].dtype).min)
    bias = (mask if position_bias is None else position_bias + mask).expand(*heads[0].shape[:3], -1)
    return attend(module, *heads, None, position_bias=bias, **options)


def score_bias(bias: Tensor | None, query: Tensor, backend: str) -> Tensor | None:
    """Return a score bias as backends take it; flex indexes one by row, so a shared one is spread over the batch.

    Shapes: bias (B or 1, H or 1, T, S), query (B, H, T, K) -> (B or 1, H or 1, T, S), a view
    """
    bias = None if bias is None else bias.to(query.dtype)
    return bias.expand(query.shape[0], -1, -1, -1) if bias is not None and backend == "flex_attention" else bias


def computed_dtype(values: Tensor) -> torch.dtype:
    """Return the dtype in which matrix products of these values are computed."""
    kind = values.device.type
    known = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if known else values.dtype


def attention_backend(config: StackConfig, kwargs: dict[str, object]) -> str:
    """Return the attention backend of this forward: eager when attention weights are requested."""
    implementation = "eager" if wants_weights(config, kwargs) else str(config._attn_implementation)
    if implementation == "sdpa" and config.attn_logit_softcapping is not None:  # which sdpa would ignore
        implementation = "eager"
    check_backend(config, implementation, paged=isinstance(kwargs.get("cache"), PagedAttentionCache))
    if kwargs.get("global_attention_mask") is not None:
        check_global_mask(config, implementation)
    return implementation


def wants_weights(config: QkvConfig, kwargs: Mapping[str, object]) -> bool:
    """Return True where this forward, or the config, asks for attention weights."""
    return bool(kwargs.get("output_attentions", getattr(config, "output_attentions", False)))


def records_states(config: QkvConfig, options: Mapping[str, object]) -> bool:
    """Return True where hooks record hidden states of this forward."""
    return bool(options.get("output_hidden_states", getattr(config, "output_hidden_states", False)))


def check_backend(config: StackConfig, implementation: str, *, paged: bool = False) -> None:
    """Raise where a backend would silently ignore a position bias, a pattern or a kernel.

    With the `paged` cache of continuous batching every backend would: only that cache knows the positions of keys.
    """
    if implementation in COMPLETE_BACKENDS and not paged:
        return
    where = "continuous batching" if paged else f"attn_implementation={implementation!r}"
    right = "generate instead of generate_batch" if paged else "'sdpa', 'flex_attention' or 'eager'"
    if config.position_word in BIAS_POSITIONS and (paged or not takes(implementation, "position_bias")):
        raise ValueError(f"{where} ignores the score bias of position={config.position!r}; use {right}")
    if config.attn_logit_softcapping is not None and (paged or not takes(implementation, "softcap")):
        raise ValueError(f"{where} ignores attn_logit_softcapping; use {right}")
    if config.causal and not paged and implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        check_head_of_engine(config, where)
    ignored = {"attention_sinks=True": config.attention_sinks, f"kernel={config.kernel!r}": config.keeps_state}
    ignored["rope_type='longrope'"] = paged and bool(config.lengths_of_longrope)  # texts of a step are rotated alike
    for name in filter(ignored.get, ignored):
        raise ValueError(f"{where} ignores {name}; use {right}")
    if paged or not takes_mask(implementation):
        check_maskless(config, where, right)


def check_head_of_engine(config: StackConfig, where: str) -> None:
    """Raise where a serving engine, which scores hidden states by the head's weight alone, would leave out more."""
    for name in ("lm_head_transform", "final_logit_softcapping"):
        if getattr(config, name, None):
            raise ValueError(f"{where} ignores {name}={getattr(config, name)}; use model.generate")


def check_maskless(config: StackConfig, where: str, right: str) -> None:
    """Raise where a backend without masks would ignore a pattern, or the global tokens of a window."""
    for pattern in config.layer_patterns:
        if pattern not in MASKLESS_PATTERNS:
            raise ValueError(f"{where} ignores pattern={pattern!r}; use {right}")
        if pattern == "sliding" and config.num_global_tokens:
            raise ValueError(f"{where} ignores num_global_tokens={config.num_global_tokens}; use {right}")


def check_global_mask(config: StackConfig, implementation: str) -> None:
    """Raise where global tokens are marked for a causal stack, or for a backend that would ignore the marks."""
    if config.causal:
        raise ValueError("global_attention_mask is for stacks that read both ways; set num_global_tokens instead")
    if implementation not in COMPLETE_BACKENDS and not takes_mask(implementation):
        right = "'sdpa', 'flex_attention' or 'eager'"
        raise ValueError(f"attn_implementation={implementation!r} ignores global_attention_mask; use {right}")


def takes(implementation: str, option: str) -> bool:
    """Return True where the function registered for a backend names an option among its parameters."""
    attend = ALL_ATTENTION_FUNCTIONS.get(implementation)
    return attend is not None and option in signature(attend).parameters


def check_takes_bias(implementation: str) -> None:
    """Raise where a backend would silently ignore the score bias of pairs, which hides padding too."""
    if implementation not in COMPLETE_BACKENDS and not takes(implementation, "position_bias"):
        raise ValueError(f"attn_implementation={implementation!r} ignores the biases of pairs; use 'sdpa' or 'eager'")


def takes_mask(implementation: str) -> bool:
    """Return True where a backend is registered with a mask function that keeps more than padding."""
    own = ALL_MASK_ATTENTION_FUNCTIONS.get(implementation)
    return own not in (None, flash_attention_mask) and "paged" not in implementation
