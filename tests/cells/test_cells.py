"""Every cell of position × pattern × kernel, in every stack of every family, works with the right numbers or is refused.

Some of them run with the other tests. `make cells` tries all of them and writes their page.
"""

import itertools
import random
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import TestCase

import pytest
import torch
from cell_models import (
    LENGTHS,
    NEW,
    PATTERNS,
    POSITIONS,
    PROMPT,
    SEED,
    STACKS,
    Batch,
    Cell,
    Family,
    build,
    cells,
    configure,
    hidden_states,
    row_of,
    stack_errors,
)
from cells_page import Outcome, Outcomes, read_page, said_of
from slow_stack import visible_pairs
from transformers import PreTrainedModel

from checkout import ROOT
from comparison import EXACT, exact
from errors import raises_sentence
from qkv import QkvRecurrentConfig

PAGE = ROOT / "model_cards" / "CELLS.md"
# Cells of each stack that run with the other tests.
SAMPLE = 20
each_stack = pytest.mark.parametrize("stack", STACKS)


@contextmanager
def nothing_said() -> Iterator[None]:
    """Let warnings of every kind fail."""
    silent = partial(TestCase().assertNoLogs, level="WARNING")
    with warnings.catch_warnings(), silent("qkv"), silent("transformers"):
        warnings.simplefilter("error")
        yield


def outcome_of(cell: Cell) -> Outcome:
    """How a cell ends; AssertionError or any other exception where it neither works nor is refused in a sentence."""
    torch.manual_seed(random.Random(f"{SEED} {cell}").getrandbits(32))
    try:
        with nothing_said():
            config = configure(cell)
    except ValueError as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        with raises_sentence():
            raise
        assert frame.f_code.co_filename.startswith(f"{ROOT}/configuration/")
        return Outcome(str(error))
    family, _ = STACKS[cell.stack]
    with nothing_said():
        model, batch = build(cell, config), family.batch()
        outputs = hidden_states(family, model, batch)
        sum((hidden * torch.randn_like(hidden)).sum() for hidden in outputs.values()).backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert gradients and all(value.isfinite().all() for value in (*outputs.values(), *gradients))
        with torch.no_grad():
            errors = stack_errors(family, model, batch, outputs)
            if model.can_generate():
                errors += generation_errors(family, model, batch)
    error = float(torch.tensor(errors).max())  # NaN where one is
    assert error <= EXACT, f"differs by {error:.1e}"
    return Outcome(None, error)


def generation_errors(family: Family, model: PreTrainedModel, batch: Batch) -> list[float]:
    """How far the scores of `generate`, cached and padded, are from those of forwards of one row without a cache."""
    target = "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids"
    given = {name: value for name, value in batch.items() if not name.startswith("decoder_")}
    prompts = [batch[target][row : row + 1, :length] for row, length in enumerate(LENGTHS)]
    if target not in given:
        given[target] = batch[target][:, :PROMPT].index_fill(1, torch.tensor([0]), model.config.decoder_start_token_id)
        prompts = list(given[target].split(1))
    options = {"max_new_tokens": NEW, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    part, errors = family.parts[0], []
    with exact():
        generated: Any = model.generate(**given, **options)
        scores, new = torch.stack(generated.logits, 1), generated.sequences[:, -NEW:]
        for row, prompt in enumerate(prompts):
            inputs = {part.given: row_of(part, batch, row), target: torch.cat((prompt, new[row : row + 1, :-1]), 1)}
            expected = model(**inputs, use_cache=False).logits[0, -NEW:]
            errors.append(float((scores[row] - expected).abs().max()))
    return errors


def outcomes_of(chosen: list[Cell]) -> Outcomes:
    """How these cells end; AssertionError that names those which end in another way."""
    outcomes, failures = {}, []
    for cell in chosen:
        try:
            outcomes[cell] = outcome_of(cell)
        except Exception as error:
            failures.append(f"{cell}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)
    return outcomes


@each_stack
@pytest.mark.costly(4)
def test_some_cells_end_as_the_page_says(stack: str) -> None:
    said = read_page(PAGE.read_text(encoding="utf-8"), stack)
    assert said.keys() == set(cells(stack)), f"the cells of {stack} have changed; `make cells` writes {PAGE.name} again"
    chosen = random.Random(f"{SEED} {stack}").sample(cells(stack), SAMPLE)
    for cell, outcome in outcomes_of(chosen).items():
        assert said_of(cell, outcome) in said[cell], cell


@pytest.mark.slow
@each_stack
def test_all_cells_work_or_are_refused(stack: str, outcomes: Outcomes) -> None:
    outcomes |= outcomes_of(cells(stack))


@pytest.mark.parametrize(("name", "word"), [("position", "rope"), ("pattern", "full"), ("kernel", "linear")])
def test_recurrent_networks_have_none_of_the_words(name: str, word: str) -> None:
    with raises_sentence("QkvRecurrentConfig", name):
        QkvRecurrentConfig(**{name: word})


def first_position(stack: str) -> str:
    """A position that a stack takes."""
    return next(word for word in POSITIONS if config_or_none(Cell(stack, word, "full", "softmax")) is not None)


def config_or_none(cell: Cell) -> Any:
    try:
        return configure(cell)
    except ValueError:
        return None


@each_stack
def test_every_pattern_hides_pairs_of_its_own(stack: str) -> None:
    """Or a model that ignores its pattern would have the same numbers."""
    position, part = first_position(stack), STACKS[stack][1]
    made = {pattern: config_or_none(Cell(stack, position, pattern, "softmax")) for pattern in PATTERNS}
    configs = {pattern: getattr(config, part) if part else config for pattern, config in made.items() if config}
    rules = [visible_pairs(config, pattern) for pattern, config in configs.items()]
    pairs = list(itertools.product(range(max(LENGTHS)), repeat=2))
    assert len(rules) > 1
    assert len({tuple(visible(0, *pair) for pair in pairs) for visible in rules}) == len(rules)
