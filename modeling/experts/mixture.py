"""Mixtures of experts: a router sends each token to a few of many feed-forward networks.

Shapes: N tokens, D hidden_size, F moe_intermediate_size, E experts, k experts of a token.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.integrations.moe import ExpertsInterface, use_experts_implementation

from ...configuration.configuration_decoder import ExpertsConfig
from ..feed_forward import GLU, make_activation

# Scores of experts, from logits (N, E).
ROUTERS: dict[str, Callable[[Tensor], Tensor]] = {"softmax": partial(torch.softmax, dim=-1), "sigmoid": torch.sigmoid}
# A sum of weights that is smaller is no divisor.
LEAST = 1e-20
# From so many tokens an expert on average, experts one after another were faster on a CPU, without and with gradients.
MANY = (128, 256)


class Router(nn.Module):
    """Choose experts for each token by the largest scores of a linear map, and weight them by these scores.

    Scores are taken in single precision at least, under autocast, too. A bias that no gradient trains takes part in the
    choice alone. Of groups of experts those are kept whose two best scores have the largest sum.

    Source: Shazeer et al. 2017, §2, https://arxiv.org/abs/1701.06538; weights of softmax over the chosen, which is a
        softmax over all divided by the sum of the chosen: Jiang et al. 2024, Mixtral, §2.1,
        https://arxiv.org/abs/2401.04088; sigmoid, bias and groups: DeepSeek-AI 2024, DeepSeek-V3, §2.1.2, eqs. 12 to
        16, https://arxiv.org/abs/2412.19437
    Shapes: (N, D) -> logits (N, E), weights (N, k), indices (N, k)
    """

    e_score_correction_bias: Tensor | None

    def __init__(self, config: ExpertsConfig) -> None:
        super().__init__()
        self.config, self.count, self.scale = config, config.num_experts_per_tok, config.routed_scaling_factor
        self.normed, self.free = config.norm_topk_prob, config.topk_group == config.n_group
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.bias = nn.Parameter(torch.empty(config.num_experts)) if config.mlp_bias else None
        self.score = ROUTERS[config.router]
        corrected = config.score_correction_bias
        self.e_score_correction_bias = nn.Buffer(torch.zeros(config.num_experts)) if corrected else None
        # How many tokens chose each expert since the bias was last moved (E,).
        self.chosen: Tensor | None = None

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if torch.is_autocast_enabled(hidden.device.type):
            with torch.autocast(hidden.device.type, enabled=False):
                return self(hidden)
        precise = torch.promote_types(hidden.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(precise)
        logits = F.linear(hidden.to(precise), self.weight.to(precise), bias)
        scores = self.score(logits)
        if self.free and self.e_score_correction_bias is None:
            weights, index = scores.topk(self.count)
        else:
            index = self.choice(scores)
            weights = scores.gather(-1, index)
        if self.normed:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=LEAST)
        return logits, weights if self.scale == 1 else weights * self.scale, index

    def choice(self, scores: Tensor) -> Tensor:
        """Choose the experts of tokens: (N, E) -> (N, k)."""
        config, bias = self.config, self.e_score_correction_bias
        scores = scores.detach() if bias is None else scores.detach() + bias
        if not self.free:
            groups = scores.unflatten(-1, (config.n_group, -1))
            kept = groups.topk(2).values.sum(-1).topk(config.topk_group).indices
            hidden = torch.ones(groups.shape[:-1], dtype=torch.bool, device=scores.device).scatter(-1, kept, 0)
            scores = groups.masked_fill(hidden[..., None], -torch.inf).flatten(-2)
        return scores.topk(self.count).indices

    def init_parameters(self, std: float) -> None:
        """Start with small weights, and without biases."""
        init.normal_(self.weight, std=std)
        for bias in (self.bias, self.e_score_correction_bias):
            if bias is not None:
                init.zeros_(bias)


class Implementations(ExpertsInterface):
    """Compute experts by the functions of transformers, and one after another where this is faster or all there is."""

    def get_interface(self, experts_implementation: str, default: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return the function of a word; `default` is that of the module."""
        way: Callable[..., Tensor] = super().get_interface(experts_implementation, default)

        def grouped(experts: nn.Module, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
            return (default if one_by_one(experts, hidden, index.numel()) else way)(experts, hidden, index, weights)

        return grouped if experts_implementation == "grouped_mm" else way


def one_by_one(experts: Any, hidden: Tensor, choices: int) -> bool:
    """Return whether products of groups are slower for so many choices of experts, or take no such numbers."""
    size = hidden.element_size()
    if size == 8 or any(width * size % 16 for width in experts.down_proj.shape[1:]):  # they read 16 bytes at a time
        return True
    if hidden.device.type != "cpu" or size < 4 or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    graph = torch.is_grad_enabled()
    return choices >= MANY[graph] * experts.num_experts or (len(hidden) == 1 and not graph)


@use_experts_implementation(experts_interface=Implementations())
class Experts(nn.Module):
    """Compute the gated networks that tokens were sent to, and sum their outputs by weights.

    `forward` is the plain way, one expert at a time; transformers computes the same by one product of groups where
    `experts_implementation` says so. The layout of weights, gate above up, is that of its interface and of vLLM.

    Source: Shazeer et al. 2017, §2, eq. 1, https://arxiv.org/abs/1701.06538; limited gates: OpenAI 2025, gpt-oss model
        card, §2.2, https://arxiv.org/abs/2508.10925
    Shapes: (N, D), indices (N, k), weights (N, k) -> (N, D)
    """

    def __init__(self, config: ExpertsConfig) -> None:
        super().__init__()
        self.num_experts, width, size = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(self.num_experts, 2 * size, width))
        self.down_proj = nn.Parameter(torch.empty(self.num_experts, width, size))
        self.gate_up_proj_bias: nn.Parameter | None = None
        self.down_proj_bias: nn.Parameter | None = None
        if config.mlp_bias:
            self.gate_up_proj_bias = nn.Parameter(torch.empty(self.num_experts, 2 * size))
            self.down_proj_bias = nn.Parameter(torch.empty(self.num_experts, width))
        self.act_fn = make_activation(config.hidden_act)
        self.alpha, self.limit = config.swiglu_alpha, config.swiglu_limit

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        chosen = top_k_index.flatten()
        if len(hidden_states) == 1 and not torch.is_grad_enabled():
            return self.of_one_token(hidden_states, top_k_index, top_k_weights)
        order = chosen.argsort(stable=True)
        tokens, weights = order // top_k_index.shape[-1], top_k_weights.flatten().index_select(0, order)[:, None]
        # Tokens that were sent to an expert of another process have its number after all of these.
        counts = chosen.bincount(minlength=self.num_experts + 1).tolist()
        parts = zip(hidden_states.index_select(0, tokens).split(counts), *self.maps(), strict=False)
        outputs = [F.linear(self._apply_gate(F.linear(part, *up)), *down) for part, up, down in parts if len(part)]
        mixed = torch.cat(outputs) if outputs else hidden_states[:0]
        mixed = mixed * weights[: len(mixed)]
        return torch.zeros_like(hidden_states).index_add(0, tokens[: len(mixed)], mixed.to(hidden_states.dtype))

    def of_one_token(self, hidden: Tensor, index: Tensor, weights: Tensor, maps: Any = None) -> Tensor:
        """Compute the chosen experts alone, with their maps if they were taken apart: (1, D), 2 x (1, k) -> (1, D)."""
        (ups, downs), outputs = maps or self.maps(), []
        for number in index[0].tolist():
            if number < self.num_experts:
                outputs.append(F.linear(self._apply_gate(F.linear(hidden, *ups[number])), *downs[number]))
            else:  # an expert of another process
                outputs.append(torch.zeros_like(hidden))
        return (weights @ torch.cat(outputs).to(weights.dtype)).to(hidden.dtype)

    def maps(self) -> list[list[tuple[Tensor, Tensor | None]]]:
        """Return the two linear maps of each expert, taken apart at once: one by one each has a gradient of all."""
        pairs = ((self.gate_up_proj, self.gate_up_proj_bias), (self.down_proj, self.down_proj_bias))
        biases = [[None] * len(weight) if bias is None else bias.unbind() for weight, bias in pairs]
        return [[*zip(weight.unbind(), bias, strict=True)] for (weight, _), bias in zip(pairs, biases, strict=True)]

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        """Scale each inner unit by its gate: (n, 2 F) -> (n, F); the name is transformers'."""
        gate, up = gate_up.chunk(2, dim=-1)
        if self.limit is not None:
            gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        if self.alpha is not None:
            return gate * torch.sigmoid(self.alpha * gate) * (up + 1)
        gate = self.act_fn(gate)
        # New memory for a product that no gradient needs costs as much as the product.
        return gate * up if torch.is_grad_enabled() else gate.mul_(up)

    def init_parameters(self, std: float) -> None:
        """Start with small weights, and without biases."""
        init.normal_(self.gate_up_proj, std=std)
        init.normal_(self.down_proj, std=std)
        for bias in (self.gate_up_proj_bias, self.down_proj_bias):
            if bias is not None:
                init.zeros_(bias)


class MixtureOfExperts(nn.Module):
    """Send each token to a few experts and, where there is one, to the expert that all tokens share.

    Source: shared expert: Dai et al. 2024, DeepSeekMoE, §3.2, eqs. 9 to 11, https://arxiv.org/abs/2401.06066; its gate:
        Qwen Team 2024, Qwen1.5-MoE, https://qwenlm.github.io/blog/qwen-moe/
    Shapes: (..., D) -> (..., D)
    """

    def __init__(self, config: ExpertsConfig) -> None:
        super().__init__()
        self.gate = Router(config)
        self.experts = cast(Any, Experts(config))
        self.experts.has_bias = config.mlp_bias  # of which transformers' decorator knows for a class alone
        shared = config.shared_expert_intermediate_size
        self.shared_expert = GLU(config, shared) if shared else None
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False) if config.shared_expert_gate else None

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        _, weights, index = self.gate(rows)
        return self.with_shared(self.experts(rows, index, weights).view(hidden.shape), hidden)

    def with_shared(self, mixed: Tensor, hidden: Tensor) -> Tensor:
        """Add the output of the expert that all tokens share, where there is one: 2 x (..., D) -> (..., D)."""
        if self.shared_expert is None:
            return mixed
        shared = self.shared_expert(hidden)
        if self.shared_expert_gate is not None:
            shared = shared * self.shared_expert_gate(hidden).sigmoid()
        return mixed + shared
