"""Attention decoders of recurrent networks: contexts, alignments, and readouts for the head.

Shapes: B batch, T targets, S sources, I inputs of a cell, D hidden_size, R vectors of a cell's state, M memory_size, A
attention_size, P readout_size.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ...configuration.configuration_recurrent import QkvRecurrentConfig
from ..heads.head import last_token
from .cells import CELLS, StepMode, write


def last_states(memory: Tensor, keep: Tensor, width: int) -> Tensor:
    """Return the final states: the forward half at the last real token, the backward one at the first.

    (B, S, M) -> (B, M)
    """
    ends = [last_token(memory[..., :width], keep)]
    if memory.shape[-1] > width:
        ends.append(memory[torch.arange(memory.shape[0], device=memory.device), keep.int().argmax(-1), width:])
    return torch.cat(ends, dim=-1)


def reading_cell(config: QkvRecurrentConfig) -> nn.Module:
    """Return a cell that reads an embedding and a context at each step."""
    return CELLS[config.cell](config.embedding_size + config.memory_size, config.hidden_size, batch_first=True)


class AttentionDecoder(nn.Module):
    """A decoder's first layer, which reads a context beside each embedding; the layers above read its outputs."""

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout)


class FixedContextDecoder(AttentionDecoder, GradientCheckpointingLayer):
    """Read the same context at every step, the encoder's last states. Everything has to pass through one vector.

    Source: Cho et al. 2014, §2.2, eq. 2-3, https://arxiv.org/abs/1406.1078
    Shapes: (B, T, I), state (B, R, D), keys (B, M) -> (B, T, D), state (B, R, D), contexts (B, T, M), no weights
    """

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.width = int(config.encoder_hidden_size)
        self.cell = reading_cell(config)

    def keys(self, memory: Tensor, keep: Tensor) -> Tensor:
        """Return the context of all steps: (B, S, M) -> (B, M)."""
        return last_states(memory, keep, self.width)

    def forward(
        self, hidden_states: Tensor, state: Tensor, mode: StepMode, memory: Tensor, keys: Tensor, memory_keep: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        contexts = keys[:, None].expand(-1, hidden_states.shape[1], -1)
        outputs, last = write(self.cell, torch.cat((hidden_states, contexts), dim=-1), state, mode)
        return self.dropout(outputs), last, contexts, None


class DotAlignment(nn.Module):
    """Score each source by the product of its memory with the state: e_i = s · h_i, unscaled.

    Source: Luong et al. 2015, §3.1, eq. 8, https://arxiv.org/abs/1508.04025
    Shapes: query (B, D), keys (B, S, M), M = D -> (B, S)
    """

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__()

    def keys(self, memory: Tensor) -> Tensor:
        """Return the keys of all steps: (B, S, M) -> (B, S, M)."""
        return memory

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return (keys @ query[..., None])[..., 0]


class AdditiveAlignment(DotAlignment):
    """Score each source by a small network: e_i = v · tanh(W s + U h_i), with `q_proj` W, `k_proj` U, `v_proj` v.

    The part of memory is computed once, before the first step.

    Source: Bahdanau et al. 2015, appendix A.1.2, https://arxiv.org/abs/1409.0473
    Shapes: query (B, D), keys (B, S, A) -> (B, S)
    """

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.q_proj = nn.Linear(config.hidden_size, config.attention_size, bias=False)
        self.k_proj = nn.Linear(config.memory_size, config.attention_size)
        self.v_proj = nn.Linear(config.attention_size, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Project memory, once for all steps: (B, S, M) -> (B, S, A)."""
        return self.k_proj(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.v_proj(torch.tanh(self.q_proj(query)[:, None] + keys))[..., 0]


class AttendedStep(GradientCheckpointingLayer):
    """Align the state with memory, and step with the mean of memory that results.

    Recomputed in one piece by gradient checkpointing: only states are kept, not the (B, S, A) inside of every step.

    Source: Bahdanau et al. 2015, §3.1, eq. 5-6, https://arxiv.org/abs/1409.0473
    Shapes: (B, I), state (B, R, D), memory (B, S, M), keys (B, S, A), keep (B, S) -> state (B, R, D), (B, M), (B, S)
    """

    def __init__(self, config: QkvRecurrentConfig, alignment: DotAlignment) -> None:
        super().__init__()
        self.alignment = alignment
        self.cell = reading_cell(config)

    def forward(
        self, hidden_states: Tensor, state: Tensor, memory: Tensor, keys: Tensor, keep: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.alignment(state[:, 0], keys)
        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(memory.dtype)
        context = (weights[:, None] @ memory)[:, 0]
        _, state = self.cell(torch.cat((hidden_states, context), dim=-1), state)
        return state, context, weights


ALIGNMENTS = {"dot": DotAlignment, "additive": AdditiveAlignment}


class AlignedDecoder(AttentionDecoder):
    """At each step read the mean of memory that the state before asks for, by the scores of an alignment.

    Source: Bahdanau et al. 2015, §3.1, https://arxiv.org/abs/1409.0473
    Shapes: (B, T, I), state (B, R, D), memory (B, S, M), keys (B, S, A) -> (B, T, D), state (B, R, D), contexts
        (B, T, M), weights (B, 1, T, S)
    """

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__(config)
        self.step = AttendedStep(config, ALIGNMENTS[config.attention](config))

    def keys(self, memory: Tensor, keep: Tensor) -> Tensor:
        """Return the keys of all steps: (B, S, M) -> (B, S, A)."""
        return self.step.alignment.keys(memory)

    def forward(
        self, hidden_states: Tensor, state: Tensor, mode: StepMode, memory: Tensor, keys: Tensor, memory_keep: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        steps = []
        for step in range(hidden_states.shape[1]):
            after, context, weights = self.step(hidden_states[:, step], state, memory, keys, memory_keep)
            state = mode.held(after, state, step)
            steps.append((state, context, weights))
        states, contexts, alignment = (torch.stack(each, dim=1) for each in zip(*steps, strict=True))
        return self.dropout(states[:, :, 0]), state, contexts, alignment[:, None]


ATTENTION_DECODERS: dict[str, type[AttentionDecoder]] = {
    "none": FixedContextDecoder,
    "additive": AlignedDecoder,
    "dot": AlignedDecoder,
}


class StateReadout(nn.Module):
    """Let the head read the state itself.

    Source: Sutskever et al. 2014, §3.1, https://arxiv.org/abs/1409.3215
    Shapes: states (B, T, D), embedded (B, T, I), contexts (B, T, M) -> (B, T, D)
    """

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__()

    def forward(self, states: Tensor, embedded: Tensor, contexts: Tensor) -> Tensor:
        return states


class TanhReadout(nn.Module):
    """Let the head see the context and the token before as well, beside the state, through one layer.

    Source: Luong et al. 2015, §3, eq. 5, https://arxiv.org/abs/1508.04025, who leave the token before out
    Shapes: states (B, T, D), embedded (B, T, I), contexts (B, T, M) -> (B, T, P)
    """

    units: ClassVar[int] = 1

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__()
        width = config.hidden_size + config.embedding_size + config.memory_size
        self.proj = nn.Linear(width, self.units * config.readout_size)

    def forward(self, states: Tensor, embedded: Tensor, contexts: Tensor) -> Tensor:
        return torch.tanh(self.proj(torch.cat((states, embedded, contexts), dim=-1)))


class MaxoutReadout(TanhReadout):
    """The larger of two linear maps, unit by unit, instead of tanh.

    It reads the state after the step, as §3.1 of the paper says; its appendix prints the one before.

    Source: Bahdanau et al. 2015, §3.1, eq. 4, and appendix A.2.2, https://arxiv.org/abs/1409.0473; maxout: Goodfellow
        et al. 2013, §2, https://arxiv.org/abs/1302.4389
    Shapes: states (B, T, D), embedded (B, T, I), contexts (B, T, M) -> (B, T, P)
    """

    units = 2

    def forward(self, states: Tensor, embedded: Tensor, contexts: Tensor) -> Tensor:
        return self.proj(torch.cat((states, embedded, contexts), dim=-1)).unflatten(-1, (-1, 2)).amax(-1)


READOUTS: dict[str, Callable[[QkvRecurrentConfig], nn.Module]] = {
    "none": StateReadout,
    "tanh": TanhReadout,
    "maxout": MaxoutReadout,
}
