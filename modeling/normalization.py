"""Norms, and residual connections with their norms around the branch.

Shapes: B batch, T tokens, D hidden_size.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import initialization as init

from ..configuration.configuration_stack import StackConfig


class LayerNorm(nn.LayerNorm):
    """Centre and scale each vector over its components, then apply a learned gain and, unless left out, a bias.

    Invariant to shifting and rescaling the input.

    Source: Ba et al. 2016, Layer Normalization, §3, https://arxiv.org/abs/1607.06450
    Shapes: (..., D) -> (..., D)
    """

    def __init__(self, config: StackConfig, size: int | None = None, *, gain: bool = True) -> None:
        super().__init__(size or config.hidden_size, config.norm_eps, elementwise_affine=gain, bias=config.norm_bias)


class ZeroCenteredLayerNorm(LayerNorm):
    """Normalise as `LayerNorm`, with a gain of 1 plus the parameter, which weight decay then draws to 1.

    Source: Parmar et al. 2024, Nemotron-4 15B, §2, table 1, https://arxiv.org/abs/2402.16819 (`layernorm1p` of
        Megatron-LM)
    Shapes: (..., D) -> (..., D)
    """

    def forward(self, hidden: Tensor) -> Tensor:
        precise = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        scaled = functional.layer_norm(precise, self.normalized_shape, eps=self.eps)
        scaled = scaled * one_plus(self.weight, scaled)
        return (scaled if self.bias is None else scaled + self.bias).to(hidden.dtype)

    def init_parameters(self, std: float) -> None:
        """Start with a gain of 1."""
        init.zeros_(self.weight)


class RMSNorm(nn.Module):
    """Divide each vector by its root mean square, then apply a learned gain; taken in single precision at least.

    Invariant to rescaling the input; no centring, no bias.

    Source: Zhang & Sennrich 2019, Root Mean Square Layer Normalization, eq. 4, https://arxiv.org/abs/1910.07467
    Shapes: (..., D) -> (..., D)
    """

    def __init__(self, config: StackConfig, size: int | None = None, *, gain: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size or config.hidden_size)) if gain else None
        self.eps = config.norm_eps

    def forward(self, hidden: Tensor) -> Tensor:
        scaled, weight = self.scaled(hidden), self.weight
        if weight is None:
            return scaled.to(hidden.dtype)
        # T5's residual connection may be in single precision where its weights are not.
        return weight * scaled.to(weight.dtype if weight.dtype in HALF else hidden.dtype)

    def scaled(self, hidden: Tensor) -> Tensor:
        """Divide by the root mean square, in single precision at least."""
        precise = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        return precise * torch.rsqrt(precise.pow(2).mean(-1, keepdim=True) + self.eps)


class ZeroCenteredRMSNorm(RMSNorm):
    """Normalise as `RMSNorm`, with a gain of 1 plus the parameter, multiplied in single precision at least.

    Source: Gemma Team 2024, Gemma, its code (`GemmaRMSNorm`), https://arxiv.org/abs/2403.08295
    Shapes: (..., D) -> (..., D)
    """

    def forward(self, hidden: Tensor) -> Tensor:
        scaled = self.scaled(hidden)
        return (scaled * one_plus(cast(Tensor, self.weight), scaled)).to(hidden.dtype)

    def init_parameters(self, std: float) -> None:
        """Start with a gain of 1."""
        init.zeros_(cast(Tensor, self.weight))


class EachHeadNorm(nn.Module):
    """Normalise each head with a gain of its own and no bias, (H, K) in all.

    Source: Dehghani et al. 2023, Scaling Vision Transformers to 22 Billion Parameters, §2, eq. 2,
        https://arxiv.org/abs/2302.05442; a gain for each head: Cohere, Command R+
    Shapes: (B, H, T, K) -> (B, H, T, K)
    """

    def __init__(self, config: StackConfig, heads: int) -> None:
        super().__init__()
        self.plain = NORMS[config.norm](config, config.head_dim, gain=False)
        self.weight = nn.Parameter(torch.ones(heads, config.head_dim))

    def forward(self, heads: Tensor) -> Tensor:
        return self.plain(heads) * self.weight[:, None]

    def init_parameters(self, std: float) -> None:
        """Start with a gain of 1."""
        init.ones_(self.weight)


class WidthNorm(nn.Module):
    """Normalise all heads of a token as one vector.

    Source: OLMo Team 2024, 2 OLMo 2 Furious, §2.2, https://arxiv.org/abs/2501.00656
    Shapes: (B, H, T, K) -> (B, H, T, K)
    """

    def __init__(self, config: StackConfig, heads: int) -> None:
        super().__init__()
        self.norm = make_norm(config, heads * config.head_dim)

    def forward(self, heads: Tensor) -> Tensor:
        joined = heads.transpose(1, 2)
        return self.norm(joined.flatten(2)).view(joined.shape).transpose(1, 2)


def leave_heads(config: StackConfig, heads: int) -> None:
    """Make no norm: queries and keys stay as they are projected.

    Source: Vaswani et al. 2017, §3.2.2, https://arxiv.org/abs/1706.03762
    Shapes: (B, H, T, K) -> (B, H, T, K)
    """


def norm_of_heads(config: StackConfig, heads: int) -> nn.Module:
    """Make a norm of each head with one gain for all.

    Source: Henry et al. 2020, Query-Key Normalization for Transformers, https://arxiv.org/abs/2010.04245
    Shapes: (B, H, T, K) -> (B, H, T, K)
    """
    return make_norm(config, config.head_dim)


HALF = (torch.float16, torch.bfloat16)
NORMS: dict[str, Callable[..., nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}
GAINS: dict[str, dict[str, Callable[..., nn.Module]]] = {
    "direct": NORMS,
    "zero_centered": {"layer": ZeroCenteredLayerNorm, "rms": ZeroCenteredRMSNorm},
    "none": {word: partial(norm, gain=False) for word, norm in NORMS.items()},
}
# From a config and a number of heads, for queries or keys.
QUERY_KEY_NORMS: dict[str, Callable[[StackConfig, int], Any]] = {
    "none": leave_heads,
    "head": norm_of_heads,
    "each_head": EachHeadNorm,
    "width": WidthNorm,
    "head_after_rotation": norm_of_heads,
}


# Whether a norm stands before the branch, on its output, and after the sum.
NORM_POSITIONS: dict[str, tuple[bool, bool, bool]] = {
    "before": (True, False, False),
    "after": (False, False, True),
    "inside": (False, True, False),
    "sandwich": (True, True, False),
}


def make_norm(config: StackConfig, size: int | None = None) -> nn.Module:
    """Return the norm of a stack, of its kind and gain."""
    return GAINS[config.norm_gain][config.norm](config, size)


def one_plus(weight: Tensor, like: Tensor) -> Tensor:
    """Return a gain that is stored less 1, in the precision of the tensor it scales."""
    return 1.0 + weight.to(like.dtype)


class Residual(nn.Module):
    """Carry the input past a branch, with a norm where `norm_position` says.

    `before` is x + f(n(x)), a path without any norm from input to output; `after` is the paper's n(x + f(x)); `inside`
    x + n(f(x)); `sandwich` x + post(f(n(x))). The branch, behind its norm, is multiplied by `residual_multiplier`, and
    by a learned gain, which close to zero at first lets deep stacks start as the identity (`layer_scale`). In training
    the whole branch is dropped for a sample with a probability that rises linearly with depth (`drop_path_rate` at the
    last).

    Source: before: Xiong et al. 2020, https://arxiv.org/abs/2002.04745; inside: Liu et al. 2021, Swin Transformer V2,
        §3.2, https://arxiv.org/abs/2111.09883; sandwich: Ding et al. 2021, CogView, §2.4,
        https://arxiv.org/abs/2105.13290; multiplier: Yang et al. 2023, Tensor Programs VI,
        https://arxiv.org/abs/2310.02244; layer scale: Touvron et al. 2021, CaiT, §2, https://arxiv.org/abs/2103.17239;
        stochastic depth: Huang et al. 2016, §3, https://arxiv.org/abs/1603.09382
    Shapes: (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig, layer_index: int, *, normed: bool = True) -> None:
        super().__init__()
        # A layer sets that of its last branch.
        self.clamp: str | None = "branch" if config.float16_clamp == "branch" else None
        self.norm_first, on_output, self.norm_last = NORM_POSITIONS[config.norm_position]
        self.norm_inside, scale = on_output and not self.norm_first, config.layer_scale
        self.norm = make_norm(config) if normed else nn.Identity()
        self.post_norm = make_norm(config) if on_output and self.norm_first else None
        self.multiplier = config.residual_multiplier
        self.initial_scale = float(scale or 0.0)
        self.layer_scale = nn.Parameter(torch.full((config.hidden_size,), float(scale))) if scale else None
        # Of most models nothing changes a branch before it is added.
        self.changes = on_output or bool(scale) or self.multiplier != 1.0
        self.dropout = nn.Dropout(config.residual_dropout)
        self.drop_path = config.drop_path_rate * layer_index / max(config.num_hidden_layers - 1, 1)

    def forward(self, hidden: Tensor, branch: Tensor) -> Tensor:
        """Add a branch's output for `self.input(...)` to the hidden states: 2 x (B, T, D) -> (B, T, D)."""
        hidden = hidden + self.drop(branch)
        hidden = self.norm(hidden) if self.norm_last else hidden
        if self.clamp is None or hidden.dtype != torch.float16:
            return hidden
        most = torch.finfo(torch.float16).max
        if self.clamp == "layer":
            return hidden.clamp(1000 - most, most - 1000)
        bound = torch.where(hidden.isinf().any(), most - 1000, most)
        return hidden.clamp(-bound, bound)

    def input(self, hidden: Tensor) -> Tensor:
        """Return the branch's input: the hidden states, normalised where the norm comes first."""
        return self.norm(hidden) if self.norm_first else hidden

    def init_parameters(self, std: float) -> None:
        """Start the gain of layer scale at the value in the config."""
        if self.layer_scale is not None:
            init.constant_(self.layer_scale, self.initial_scale)

    def change(self, branch: Tensor) -> Tensor:
        """Apply the norm on a branch's output, the multiplier and layer scale."""
        branch = self.norm(branch) if self.norm_inside else branch
        branch = branch if self.post_norm is None else self.post_norm(branch)
        branch = branch if self.multiplier == 1.0 else branch * self.multiplier
        return branch if self.layer_scale is None else branch * self.layer_scale

    def drop(self, branch: Tensor) -> Tensor:
        """Apply the changes of a branch, dropout and stochastic depth, the last two keeping the expected value."""
        branch = self.change(branch) if self.changes else branch
        # A step of generation is short, and a module that does nothing is a call all the same.
        branch = self.dropout(branch) if self.dropout.training else branch
        if not self.training or not self.drop_path:
            return branch
        kept = torch.rand(branch.shape[0], 1, 1, device=branch.device) >= self.drop_path
        return branch * kept.to(branch.dtype) / (1 - self.drop_path)
