"""The gated delta rule: a state that decays, and that replaces the value stored under a key.

Shapes: B batch, T tokens, N chunks, C tokens of a chunk, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import Cache

from ...configuration.configuration_stack import StackConfig
from ..attention import SelfAttention, add_position, join_heads
from ..context import NO_CONTEXT, LayerContext
from ..masks.masking import TokenMask
from ..normalization import RMSNorm
from ..position.hooks import apply_rotation
from .chunks import DocumentChunks, chunk_size, split_chunks
from .state_cache import state_layer

# Added to the square of a length before the square root.
LENGTH_EPS = 1e-6


class DeltaInputs(NamedTuple):
    """Inputs of the delta rule, in single precision at least: key and value (B, G, T, K), others (B, G, T).

    `log_decay` is the logarithm of the share of the state that is kept, `rate` the share by which the value under a key
    is replaced; padding keeps all and replaces nothing.
    """

    key: Tensor
    value: Tensor
    log_decay: Tensor
    rate: Tensor


class DeltaChunks(NamedTuple):
    """Solve chunks for any state S before them: tokens write `values` - `keys` S and read by `query` and `scores`.

    `written` are the keys under which the state after the chunk holds what tokens wrote, `kept` the share of S in it.

    Shapes: values and keys (B, G, 1, N, C, K), query (B, G, H / G, N, C, K), scores (B, G, H / G, N, C, C), written
        (B, G, 1, N, K, C), kept (B, G, 1, N, 1, 1)
    """

    values: Tensor
    keys: Tensor
    query: Tensor
    scores: Tensor
    written: Tensor
    kept: Tensor


def activate(heads: Tensor) -> Tensor:
    """Apply SiLU in single precision at least: (..., K) -> (..., K)."""
    return F.silu(heads.to(torch.promote_types(heads.dtype, torch.float32)))


def unit_length(heads: Tensor) -> Tensor:
    """Scale vectors to length 1: (..., K) -> (..., K)."""
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + LENGTH_EPS)


def delta_chunks(query: Tensor, inputs: DeltaInputs, documents: Tensor | None = None) -> DeltaChunks:
    """Solve inside all chunks at once for what their tokens write, by the triangular system of each.

    Source: Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule, §3.2, https://arxiv.org/abs/2406.06484
    """
    size = chunk_size(query.shape[-2])
    query, key, value = (
        split_chunks(each, size) for each in (query, inputs.key.unsqueeze(2), inputs.value.unsqueeze(2))
    )
    log_decay, rate = (split_chunks(each[:, :, None, :, None], size) for each in (inputs.log_decay, inputs.rate))
    same = None if documents is None else DocumentChunks.of(documents, size, query.dtype)
    later = torch.ones(size, size, dtype=torch.bool, device=query.device).triu(1)
    apart = later if same is None else later | (same.same == 0)
    # Summed inside documents, so that no bit of one depends on another.
    total = log_decay.cumsum(-2) if same is None else (~apart).to(log_decay) @ log_decay
    decay = (total - total.transpose(-1, -2)).masked_fill(apart, -torch.inf).exp()
    past, rest = total.exp(), decay[..., -1:, :].transpose(-1, -2)
    past = past if same is None else past * same.reads
    system = rate * (key @ key.transpose(-1, -2)) * decay
    right = torch.cat((rate * value, rate * past * key), dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    values, keys = solved.split((value.shape[-1], key.shape[-1]), dim=-1)
    scores = query @ key.transpose(-1, -2) * decay
    return DeltaChunks(values, keys, query * past, scores, (key * rest).transpose(-1, -2), past[..., -1:, :])


def gated_delta_rule(
    query: Tensor, inputs: DeltaInputs, documents: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Let queries read the state after their token: S_t = a_t (I - b_t k_t k_t^T) S_(t-1) + b_t k_t v_t^T.

    Documents start from nothing, other tokens from a state.

    Source: Yang, Kautz & Hatamizadeh 2024, Gated Delta Networks, eq. 10, https://arxiv.org/abs/2412.06464
    Shapes: query (B, G, H / G, T, K), documents (B or 1, T), state (B, G, K, K) -> (B, G, H / G, T, K), (B, G, K, K)
    """
    split = delta_chunks(query, inputs, documents)
    shape = (*inputs.key.shape[:2], 1, inputs.key.shape[-1], inputs.value.shape[-1])
    before = query.new_zeros(shape) if state is None else state.unsqueeze(2)
    read = read_by_scan if runs_in_parallel(query) else read_by_loop
    mixed, end = read(split, before)
    return mixed[..., : query.shape[-2], :], end.squeeze(2)


def runs_in_parallel(query: Tensor) -> bool:
    """Return True where a device computes many chunks in the time of one."""
    return query.device.type != "cpu"


def read_by_loop(split: DeltaChunks, before: Tensor) -> tuple[Tensor, Tensor]:
    """Read chunk by chunk, while the state is in the processor's cache: -> (B, G, H / G, T, K), (B, G, 1, K, K)."""
    mixed = []
    for values, keys, reads, scores, written, kept in zip(*(part.unbind(3) for part in split), strict=True):
        new = values - keys @ before
        mixed.append(reads @ before + scores @ new)
        before = kept * before + written @ new
    return torch.cat(mixed, dim=-2), before


def read_by_scan(split: DeltaChunks, before: Tensor) -> tuple[Tensor, Tensor]:
    """Read all chunks at once, after a scan of their states by doubling: log N products of N chunks, not N of one.

    A chunk turns the state S before it into A S + B; two chunks, into A' A S + (A' B + B').

    Source: Hillis & Steele 1986, Data Parallel Algorithms, https://doi.org/10.1145/7902.7903
    """
    values, keys, reads, scores, written, kept = split
    turned = kept * torch.eye(keys.shape[-1], dtype=keys.dtype, device=keys.device) - written @ keys
    # The state before all chunks is one that keeps nothing.
    turned, added = F.pad(turned, (0, 0, 0, 0, 1, 0)), torch.cat((before.unsqueeze(3), written @ values), dim=3)
    step = 1
    while step < turned.shape[3]:
        later = turned[:, :, :, step:]
        added = torch.cat((added[:, :, :, :step], added[:, :, :, step:] + later @ added[:, :, :, :-step]), dim=3)
        turned = torch.cat((turned[:, :, :, :step], later @ turned[:, :, :, :-step]), dim=3)
        step *= 2
    states = added[:, :, :, :-1]
    mixed = reads @ states + scores @ (values - keys @ states)
    return mixed.flatten(-3, -2), added[:, :, :, -1]


def initial_memories(decay_log: Tensor, decay_bias: Tensor) -> None:
    """Start with memories of one to a thousand tokens, the range from which Mamba-2 draws: 2 x (G,)."""
    share = torch.linspace(0, 1, len(decay_log), device=decay_log.device)
    init.copy_(decay_log, (1 + 15 * share).log())
    init.copy_(decay_bias, torch.expm1(0.001 * 100**share).log())  # softplus of it is 0.001 to 0.1


def shares(module: Any, decay: Tensor, rate: Tensor, mask: TokenMask | None) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the share that is kept, and the share replaced: 2 x (B, T, G) -> 2 x (B, G, T)."""
    precise = torch.promote_types(decay.dtype, torch.float32)
    decay = -module.decay_log.to(precise).exp() * F.softplus(decay.to(precise) + module.decay_bias)
    decay, rate = decay.transpose(1, 2), rate.to(precise).sigmoid().transpose(1, 2)
    if mask is None or mask.padding is None:
        return decay, rate
    return decay * mask.padding[:, None], rate * mask.padding[:, None]


class GatedDeltaAttention(SelfAttention):
    """Read a state in which each token replaces the value under its key; old values decay.

    Queries and keys have length 1, and outputs are normalised in each head. Without the paper's short convolutions,
    which `GatedDeltaNet` has, the output gate is `attention_gate`, a sigmoid.

    Source: Yang, Kautz & Hatamizadeh 2024, Gated Delta Networks, §3.1 to §3.3, https://arxiv.org/abs/2412.06464; decay:
        Dao & Gu 2024, Mamba-2, §7, https://arxiv.org/abs/2405.21060
    Shapes: (B, T, D) -> (B, T, D) and no weights
    """

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__(config, layer_index)
        groups = config.num_key_value_heads
        self.decay_proj = nn.Linear(config.hidden_size, groups, bias=False)
        self.rate_proj = nn.Linear(config.hidden_size, groups, bias=False)
        self.decay_log = nn.Parameter(torch.zeros(groups))
        self.decay_bias = nn.Parameter(torch.zeros(groups))
        self.out_norm = RMSNorm(config, config.head_dim)

    def init_parameters(self, std: float) -> None:
        """Let heads start with memories of one to a thousand tokens."""
        initial_memories(self.decay_log, self.decay_bias)

    def forward(self, hidden: Tensor, context: LayerContext = NO_CONTEXT) -> tuple[Tensor, Tensor | None]:
        mask, position, cache = cast("TokenMask | None", context.mask), context.position, context.cache
        if context.weights:
            raise ValueError("kernel='gated_delta' has no attention weights; set output_attentions=False")
        placed = add_position(hidden, position.query_key)
        query, key = self.query(context.select(placed)), self.key(placed)
        value, gates = self.value(hidden), (self.decay_proj(hidden), self.rate_proj(hidden))
        with torch.autocast(hidden.device.type, enabled=False):
            turned = apply_rotation(unit_length(activate(query)), unit_length(activate(key)), position.rotation)
            inputs = DeltaInputs(turned[1], activate(value), *shares(self, *gates, mask))
            mixed = self.out_norm(self.mix(turned[0], inputs, mask, cache))
        return self.output(join_heads(mixed.to(hidden.dtype), query), context.select(hidden)), None

    def mix(self, query: Tensor, inputs: DeltaInputs, mask: TokenMask | None, past_key_values: Cache | None) -> Tensor:
        """Let queries (B, H, T, K) read the states after their tokens, and store the last: -> (B, T, H, K)."""
        layer = state_layer(past_key_values, self.layer_idx)
        before = layer.state[0] if layer is not None and layer.state is not None else None
        grouped = query.unflatten(1, (inputs.key.shape[1], -1))
        mixed, state = gated_delta_rule(grouped, inputs, None if mask is None else mask.documents, before)
        if layer is not None:
            layer.store((state,), query.shape[2])
        return mixed.flatten(1, 2).transpose(1, 2)
