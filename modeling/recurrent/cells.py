"""Recurrent cells, and the layers made of them.

Shapes: B batch, T targets, S sources, I inputs of a cell, D hidden_size, R vectors of a cell's state, M memory_size, N
states kept.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ...configuration.configuration_recurrent import QkvRecurrentConfig


def weights_now(cell: nn.RNNBase) -> list[Tensor]:
    """Return a cell's present parameters; torch's list misses parameters from offloading or adapters."""
    weights = [getattr(cell, name) for name in cell._flat_weights_names]
    cell._flat_weights = list(weights)
    return weights


class GRU(nn.GRU):
    """Gate how much of the state stays and how much of it a proposal reads; a sequence runs in one fused kernel.

    The reset gate acts on the state's matrix product, as in all fused kernels; in the paper on the state itself.

    Source: Cho et al. 2014, §2.3, eq. 5-8, https://arxiv.org/abs/1406.1078
    Shapes: input (B, T, I), hx (B, 1, D) -> (B, T, D), (B, 1, D); a single step (B, I), (B, 1, D) -> (B, D), (B, 1, D)
    """

    vectors: ClassVar[int] = 1

    def forward(  # type: ignore[override]  # always has a state, which is one tensor
        self, input: Tensor, hx: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = weights_now(self)
        if input.ndim == 2:
            state = torch.gru_cell(input, hx[:, 0], *weights)
            return state, state[:, None]
        outputs, state = super().forward(input, hx.transpose(0, 1).contiguous())
        return outputs, state.transpose(0, 1)


class LSTM(nn.LSTM):
    """Keep a second vector that gates write, erase and read, along which gradients flow unchanged.

    Source: Hochreiter & Schmidhuber 1997, §4; forget gate: Gers et al. 2000, https://doi.org/10.1162/089976600300015015
    Shapes: input (B, T, I), hx (B, 2, D) -> (B, T, D), (B, 2, D); a single step (B, I), (B, 2, D) -> (B, D), (B, 2, D)
    """

    vectors: ClassVar[int] = 2

    def forward(  # type: ignore[override]  # always has a state, which is one tensor
        self, input: Tensor, hx: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = weights_now(self)
        if input.ndim == 2:
            state = torch.stack(torch.lstm_cell(input, hx.unbind(1), *weights), dim=1)
            return state[:, 0], state
        pair = hx.transpose(0, 1).contiguous()
        outputs, states = super().forward(input, (pair[:1], pair[1:]))
        return outputs, torch.cat(states).transpose(0, 1)


CELLS: dict[str, Any] = {"gru": GRU, "lstm": LSTM}


def reading_orders(keep: Tensor) -> tuple[Tensor, Tensor]:
    """Return the order of tokens read forward and read backward, padding last: (B, T) -> 2 x (B, T)."""
    place = torch.arange(keep.shape[1], device=keep.device)
    forward = (place + keep.shape[1] * ~keep).argsort(1)  # all differ: ONNX has no stable sort
    return forward, forward.gather(1, (keep.sum(1, keepdim=True) - 1 - place) % keep.shape[1])


def in_order(cell: nn.Module, inputs: Tensor, order: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Run a cell over each row in its order; outputs are put back where their inputs stood: (B, T, I) -> (B, T, D)."""
    outputs, state = cell(inputs.gather(1, order[..., None].expand_as(inputs)), state)
    return outputs.gather(1, order.argsort(1)[..., None].expand_as(outputs)), state


class RecurrentLayer(GradientCheckpointingLayer):
    """Read a sequence forward, and if `bidirectional` backward too, so that each output knows the tokens after it.

    Padding is read last, after all real tokens of its row, wherever it stands: it changes no output of theirs.

    Source: Schuster & Paliwal 1997, §III; Bahdanau et al. 2015, appendix A.2.1, https://arxiv.org/abs/1409.0473
    Shapes: (B, S, I), two orders (B, S) -> (B, S, M)
    """

    def __init__(self, config: QkvRecurrentConfig, width: int) -> None:
        super().__init__()
        directions = 2 if config.bidirectional else 1
        self.cells = nn.ModuleList(
            CELLS[config.cell](width, config.encoder_hidden_size, batch_first=True) for _ in range(directions)
        )
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden_states: Tensor, *orders: Tensor) -> Tensor:
        outputs = []
        cells: Any = self.cells
        for cell, order in zip(cells, orders, strict=False):
            state = hidden_states.new_zeros(hidden_states.shape[0], cell.vectors, cell.hidden_size)
            outputs.append(in_order(cell, hidden_states, order, state)[0])
        return self.dropout(torch.cat(outputs, dim=-1))


class StepMode(NamedTuple):
    """Step mode of a decoder: which tokens are real (B, T), None for all, and whether it runs in single steps.

    In single steps there is a state after each token, and padding leaves it as it is. Otherwise the last state is that
    after the last real token only where there is no padding.
    """

    keep: Tensor | None
    stepwise: bool

    def held(self, state: Tensor, before: Tensor, step: int) -> Tensor:
        """Return the state after a step, or the one before it where the step's token is padding: (B, R, D)."""
        return state if self.keep is None else torch.where(self.keep[:, step, None, None], state, before)


def write(cell: nn.Module, inputs: Tensor, state: Tensor, mode: StepMode) -> tuple[Tensor, Tensor]:
    """Run a cell from a state on: (B, T, I), (B, R, D) -> outputs (B, T, D), states (B, N, R, D)."""
    if mode.stepwise:
        states = []
        for step in range(inputs.shape[1]):
            state = mode.held(cell(inputs[:, step], state)[1], state, step)
            states.append(state)
        kept = torch.stack(states, dim=1)
        return kept[:, :, 0], kept
    if mode.keep is None:
        outputs, state = cell(inputs, state)
    else:
        outputs, state = in_order(cell, inputs, reading_orders(mode.keep)[0], state)
    return outputs, state[:, None]


class RecurrentDecoderLayer(GradientCheckpointingLayer):
    """Read the outputs of the layer below so far.

    Source: Sutskever et al. 2014, §3.4, https://arxiv.org/abs/1409.3215
    Shapes: (B, T, D), state (B, R, D) -> (B, T, D), states (B, N, R, D)
    """

    def __init__(self, config: QkvRecurrentConfig) -> None:
        super().__init__()
        self.cell = CELLS[config.cell](config.hidden_size, config.hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden_states: Tensor, state: Tensor, mode: StepMode) -> tuple[Tensor, Tensor]:
        outputs, states = write(self.cell, hidden_states, state, mode)
        return self.dropout(outputs), states
