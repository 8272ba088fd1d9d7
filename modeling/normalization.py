"""Norms, and residual connections with their norm before or after the branch.

Shapes: B batch, T tokens, D hidden_size.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..configuration.configuration_stack import StackConfig


class LayerNorm(nn.LayerNorm):
    """Centre and scale each vector over its components, then apply a learned gain and, unless left out, a bias.

    Invariant to shifting and rescaling the input.

    Source: Ba et al. 2016, Layer Normalization, §3, https://arxiv.org/abs/1607.06450
    Shapes: (..., D) -> (..., D)
    """

    def __init__(self, config: StackConfig, size: int | None = None) -> None:
        super().__init__(size or config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)


class RMSNorm(nn.Module):
    """Divide each vector by its root mean square, then apply a learned gain; taken in single precision at least.

    Invariant to rescaling the input; no centring, no bias.

    Source: Zhang & Sennrich 2019, Root Mean Square Layer Normalization, eq. 4, https://arxiv.org/abs/1910.07467
    Shapes: (..., D) -> (..., D)
    """

    def __init__(self, config: StackConfig, size: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size or config.hidden_size))
        self.eps = config.norm_eps

    def forward(self, hidden: Tensor) -> Tensor:
        precise = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        scaled = precise * torch.rsqrt(precise.pow(2).mean(-1, keepdim=True) + self.eps)
        # T5's residual connection may be in single precision where its weights are not.
        half = self.weight.dtype in (torch.float16, torch.bfloat16)
        return self.weight * scaled.to(self.weight.dtype if half else hidden.dtype)


NORMS = {"layer": LayerNorm, "rms": RMSNorm}


class Residual(nn.Module):
    """Carry the input past a branch: x + f(norm(x)) when `norm_first`, else norm(x + f(x)).

    Pre-norm leaves a path without any norm from input to output; post-norm is the paper's. A learned gain on the
    branch, close to zero at first, lets deep stacks start as the identity (`layer_scale`). In training the whole branch
    is dropped for a sample with a probability that rises linearly with depth (`drop_path_rate` at the last).

    Source: Xiong et al. 2020, https://arxiv.org/abs/2002.04745; layer scale: Touvron et al. 2021, CaiT, §2,
        https://arxiv.org/abs/2103.17239; stochastic depth: Huang et al. 2016, §3, https://arxiv.org/abs/1603.09382
    Shapes: (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig, layer_index: int, *, normed: bool = True) -> None:
        super().__init__()
        # A layer sets that of its last branch.
        self.clamp: str | None = "branch" if config.float16_clamp == "branch" else None
        self.norm = NORMS[config.norm](config) if normed else nn.Identity()
        scale = config.layer_scale
        self.initial_scale = float(scale or 0.0)
        self.layer_scale = nn.Parameter(torch.full((config.hidden_size,), float(scale))) if scale else None
        self.norm_first = config.norm_first
        self.dropout = nn.Dropout(config.residual_dropout)
        self.drop_path = config.drop_path_rate * layer_index / max(config.num_hidden_layers - 1, 1)

    def forward(self, hidden: Tensor, branch: Tensor) -> Tensor:
        """Add a branch's output for `self.input(...)` to the hidden states: 2 x (B, T, D) -> (B, T, D)."""
        hidden = hidden + self.drop(branch)
        hidden = hidden if self.norm_first else self.norm(hidden)
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

    def drop(self, branch: Tensor) -> Tensor:
        """Apply layer scale, dropout and stochastic depth, the last two keeping the expected value."""
        branch = branch if self.layer_scale is None else branch * self.layer_scale
        # A step of generation is short, and a module that does nothing is a call all the same.
        branch = self.dropout(branch) if self.dropout.training else branch
        if not self.training or not self.drop_path:
            return branch
        kept = torch.rand(branch.shape[0], 1, 1, device=branch.device) >= self.drop_path
        return branch * kept.to(branch.dtype) / (1 - self.drop_path)
