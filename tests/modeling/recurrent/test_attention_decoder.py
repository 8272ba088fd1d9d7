"""Contexts and readouts by their formulas; additive attention by hand; the documents' example."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import reference
from qkv import QkvRecurrentConfig
from qkv.modeling.recurrent.attention_decoder import (
    ATTENTION_DECODERS,
    READOUTS,
    AdditiveAlignment,
    last_states,
)
from qkv.modeling.recurrent.cells import StepMode

SOURCES, TARGETS = 5, 4
KEEP = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]).bool()
SIZES = {"hidden_size": 4, "embedding_size": 3, "attention_size": 5, "encoder_hidden_size": 2, "vocab_size": 9}


def config(**fields: Any) -> QkvRecurrentConfig:
    return QkvRecurrentConfig(**{**SIZES, **fields})


def draw(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def made(part: Any, *arguments: Any) -> Any:
    torch.manual_seed(0)
    module = part(*arguments).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return module


def test_additive_attention_is_the_papers_loop() -> None:
    alignment = made(AdditiveAlignment, config())
    states, memory = draw(2, 4), draw(2, SOURCES, 4, seed=2)
    weights = (alignment.q_proj.weight, alignment.k_proj.weight, alignment.k_proj.bias, alignment.v_proj.weight[0])
    scores = alignment(states, alignment.keys(memory))
    rows = [reference.additive_scores(state, row, *weights) for state, row in zip(states, memory, strict=True)]
    assert_close(scores, torch.stack(rows), rtol=0, atol=1e-12)
    leaves = [states, memory, *alignment.parameters()]
    upstream = torch.randn_like(scores)
    ours = torch.autograd.grad(scores, leaves, upstream)
    expected = torch.autograd.grad(torch.stack(rows), leaves, upstream)
    for mine, right in zip(ours, expected, strict=True):
        assert_close(mine, right, rtol=0, atol=1e-12)


def test_the_last_states_are_those_of_real_tokens() -> None:
    memory = draw(2, SOURCES, 4)
    expected = torch.stack(
        (torch.cat((memory[0, 2, :2], memory[0, 0, 2:])), torch.cat((memory[1, 4, :2], memory[1, 1, 2:])))
    )
    assert torch.equal(last_states(memory, KEEP, 2), expected)
    assert torch.equal(last_states(memory[..., :2], KEEP, 2), expected[:, :2])


@pytest.mark.parametrize("attention", ATTENTION_DECODERS)
def test_an_attention_decoder_is_the_loop_of_its_formula(attention: str) -> None:
    decoder = made(ATTENTION_DECODERS[attention], config(attention=attention))
    embedded, state, memory = draw(2, TARGETS, 3), draw(2, 1, 4, seed=2), draw(2, SOURCES, 4, seed=3)
    keys = decoder.keys(memory, KEEP)
    outputs, states, contexts, weights = decoder(embedded, state, StepMode(None, stepwise=False), memory, keys, KEEP)
    for row in range(2):
        real = memory[row][KEEP[row]]
        expected, seen, mixed = by_hand(decoder, attention, embedded[row], state[row, 0], real)
        assert_close(outputs[row], expected, rtol=0, atol=1e-12)
        assert_close(states[row, 0], expected[-1], rtol=0, atol=1e-12)
        assert_close(contexts[row], seen, rtol=0, atol=1e-12)
        if weights is not None:
            assert_close(weights[row, 0][:, KEEP[row]], mixed, rtol=0, atol=1e-12)
            assert (weights[row, 0][:, ~KEEP[row]] == 0).all()
    assert (weights is None) == (attention == "none")


def by_hand(
    decoder: Any, attention: str, embedded: Tensor, state: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One row without padding: states (T, D), contexts (T, M), weights (T, S)."""
    cell = decoder.cell if attention == "none" else decoder.step.cell
    outputs, contexts, alignments = [], [], []
    for x in embedded:
        weights = torch.zeros(len(memory), dtype=torch.float64)
        context = torch.cat((memory[-1, :2], memory[0, 2:]))
        if attention == "dot":
            scores = torch.stack([sum(s * h for s, h in zip(state, source, strict=True)) for source in memory])
            context, weights = reference.weighted_context(scores, memory)
        elif attention == "additive":
            part = decoder.step.alignment
            given = (part.q_proj.weight, part.k_proj.weight, part.k_proj.bias, part.v_proj.weight[0])
            context, weights = reference.weighted_context(reference.additive_scores(state, memory, *given), memory)
        state = reference.gru_step(torch.cat((x, context)), state, *cell.parameters())
        outputs.append(state)
        contexts.append(context)
        alignments.append(weights)
    return torch.stack(outputs), torch.stack(contexts), torch.stack(alignments)


def test_without_attention_everything_passes_through_the_last_states() -> None:
    """The gradient reaches no other part of memory; with attention it reaches all of it."""
    reached = {}
    for attention in ATTENTION_DECODERS:
        decoder = made(ATTENTION_DECODERS[attention], config(attention=attention))
        memory, everything = draw(2, SOURCES, 4), torch.ones(2, SOURCES, dtype=torch.bool)
        keys = decoder.keys(memory, everything)
        mode = StepMode(None, stepwise=False)
        outputs = decoder(draw(2, TARGETS, 3), draw(2, 1, 4), mode, memory, keys, everything)[0]
        gradient = torch.autograd.grad(outputs.square().sum(), memory)[0]
        reached[attention] = [int(count) for count in (gradient[0] != 0).sum(-1)]
    assert reached == {"none": [2, 0, 0, 0, 2], "additive": [4] * SOURCES, "dot": [4] * SOURCES}


@pytest.mark.parametrize("readout", READOUTS)
def test_readouts_are_their_formulas(readout: str) -> None:
    settings = config(readout=readout, readout_size=4 if readout == "none" else 6)
    part = made(READOUTS[readout], settings)
    states, embedded, contexts = draw(2, TARGETS, 4), draw(2, TARGETS, 3), draw(2, TARGETS, 4, seed=2)
    ours = part(states, embedded, contexts)
    assert ours.shape == (2, TARGETS, settings.readout_size)
    joined = torch.cat((states, embedded, contexts), dim=-1)[1, 2]
    expected = {
        "none": lambda: states[1, 2],
        "tanh": lambda: torch.tanh(part.proj.weight @ joined + part.proj.bias),
        "maxout": lambda: reference.maxout(joined, part.proj.weight, part.proj.bias),
    }[readout]()
    assert_close(ours[1, 2], expected, rtol=0, atol=1e-12)
