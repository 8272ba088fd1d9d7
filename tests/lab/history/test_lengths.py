"""Costs of long texts: stacks are what the recipe makes of their words, costs what a pass takes, slopes exponents."""

import shlex

import pytest
import torch

from qkv.scripts.arguments import parser_of
from qkv.scripts.lab.arguments import LAB
from qkv.scripts.lab.history import lengths
from qkv.scripts.lab.history.lengths import (
    FIT_FROM,
    RECIPE,
    STACKS,
    fitted_exponent,
    measure_stacks,
    peak_bytes,
    recalled,
)
from qkv.scripts.recipes.loading import read_card


def test_the_peak_is_of_what_lives_at_once() -> None:
    start = torch.ones(1000)

    def step() -> None:
        one = start + 1
        other = one + 1
        del one
        other.sum()

    assert peak_bytes(step) == 2 * 4000


def test_costs_are_measured_of_every_stack() -> None:
    curves = measure_stacks([8, 16], most_seconds=60.0)
    assert curves.keys() == STACKS.keys()
    for own in curves.values():
        assert all([length for length, _ in curve] == [8, 16] for curve in own.values())
        assert own["step_bytes"][1][1] > own["forward_bytes"][1][1] > own["forward_bytes"][0][1] > 0


def test_exponents_are_of_long_texts() -> None:
    curve = [[FIT_FROM / 2, 100.0], *([FIT_FROM * 2**power, 3.0 * 4**power] for power in range(3))]
    assert fitted_exponent(curve) == pytest.approx(2)
    assert fitted_exponent(curve[:2]) is None


def test_what_is_recalled_is_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The card compares the same stacks as the page."""
    card = read_card(RECIPE)
    compared = parser_of("compare", LAB).parse_args(shlex.split(card["command"])[2:]).also
    assert {name: words for name, *words in compared} == {
        name: stack.words for name, stack in STACKS.items() if stack.words
    }
    assert recalled()["full"]["accuracy"] == card["comparison"]["models"]["qkv"]["metrics"]["test"]["accuracy"]
    monkeypatch.setattr(lengths, "read_card", lambda name: None)
    assert recalled() == {}
