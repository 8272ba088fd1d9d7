"""The page of all cells: tables of patterns and of kernels, and the sentences of what is refused."""

import itertools
import re
from typing import NamedTuple

from cell_models import KERNELS, PATTERNS, POSITIONS, STACKS, Cell, cells

WORKS = "✓"
SCORES, *OTHERS = KERNELS
HEAD = """# Combinations of position, pattern and kernel

<!-- Written by `make cells`. Change tests/cells, never this file. -->

Every position encoding with every attention pattern and every kernel, in every stack of every family: {cells:,} cells, of
which {works:,} work and {refused:,} are refused. None is undefined. Stacks whose tables are the same share them.

- **{mark}** works. A tiny model with random weights reads two rows, of different lengths where the input can be padded, in
  double precision. The hidden states of all its stacks are those of slow loops written from the papers
  ([`reference.py`](../tests/support/reference.py)), which read one row at a time and no padding: the largest difference
  of all cells is {error:.1e}. Gradients are finite, and nothing is logged. Where a model generates, the scores of
  `generate`, with its cache and padded prompts, are those of forwards without them.
- **A number** is refused: the config raises a ValueError with that [sentence](#sentences).

Words are given to the part that is named behind the family, as in `encoder={{"position": "rope"}}`. Given flat, they are
given to all parts, and refused where one of them refuses them.

{made_with} {processor}. Seed {seed}, commit {commit}, {minutes:.1f} minutes.

| stack | works | refused | largest difference |
| --- | --- | --- | --- |
{rows}| recurrent | none | all | |

Recurrent networks (`QkvRecurrent`) read one token after another and have none of these fields; `QkvRecurrentConfig` says so
of each that it is given.
"""


class Outcome(NamedTuple):
    """How a cell ended: the sentence that refuses it, or how far it is from the slow loops."""

    refusal: str | None
    error: float = 0.0


Outcomes = dict[Cell, Outcome]
# A column's cells by what is above it: their kernel, and their patterns.
Columns = dict[str, tuple[str, tuple[str, ...]]]
SCORES_COLUMNS: Columns = {pattern: (SCORES, (pattern,)) for pattern in PATTERNS}
OTHER_COLUMNS: Columns = {
    f"{kernel}, {name}": (kernel, patterns)
    for kernel in OTHERS
    for name, patterns in (("full", PATTERNS[:1]), ("other patterns", PATTERNS[1:]))
}


def sentence_of(cell: Cell, refusal: str) -> str:
    """A refusal without the words and the class of the cell, so that it is the same for all that it refuses."""
    for name in ("position", "pattern", "kernel"):
        refusal = refusal.replace(f"{name}={getattr(cell, name)!r}", f"{name}=…", 1)
    return re.sub(r"Qkv\w+Config", "this config", re.sub(r"; did you mean .*", "", refusal))


def said_of(cell: Cell, outcome: Outcome) -> str:
    """What the page says of a cell: that it works, or the sentence that refuses it."""
    return WORKS if outcome.refusal is None else sentence_of(cell, outcome.refusal)


def table(rows: dict[str, list[str]], columns: list[str], *, apart: bool) -> str:
    """A table of positions, of which those with the same row share it; with `apart`, only where nothing works."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for position, row in rows.items():
        own = (position,) if apart and WORKS in row else ()
        groups.setdefault((*own, *row), []).append(position)
    lines = [("position", *columns), ["---"] * (1 + len(columns))]
    lines += [(", ".join(words), *rows[words[0]]) for words in groups.values()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(stack: str, outcomes: Outcomes, numbers: dict[str, str]) -> str:
    """The tables of a stack."""

    def entry(position: str, kernel: str, patterns: tuple[str, ...]) -> str:
        named = [Cell(stack, position, pattern, kernel) for pattern in patterns]
        said = {said_of(cell, outcomes[cell]) for cell in named}
        return ", ".join(numbers[sentence] for sentence in numbers if sentence in said)

    def rows(columns: Columns) -> dict[str, list[str]]:
        return {position: [entry(position, *column) for column in columns.values()] for position in POSITIONS}

    scores = table(rows(SCORES_COLUMNS), [*SCORES_COLUMNS], apart=True)
    others = table(rows(OTHER_COLUMNS), [*OTHER_COLUMNS], apart=False)
    return f"With `kernel={SCORES!r}`:\n\n{scores}\nWith other kernels:\n\n{others}"


def page(outcomes: Outcomes, **facts: object) -> str:
    """The whole page."""
    said = dict.fromkeys(said_of(cell, outcome) for cell, outcome in outcomes.items())
    sentences = [sentence for sentence in said if sentence != WORKS]
    numbers = {WORKS: WORKS, **{sentence: str(number) for number, sentence in enumerate(sentences, start=1)}}
    errors = {
        stack: [outcomes[cell].error for cell in cells(stack) if outcomes[cell].refusal is None] for stack in STACKS
    }
    rows = "".join(
        f"| {stack} | {len(each)} | {len(cells(stack)) - len(each)} | {max(each):.1e} |\n"
        for stack, each in errors.items()
    )
    works = sum(map(len, errors.values()))
    counts = {"cells": len(outcomes), "works": works, "refused": len(outcomes) - works}
    sections: dict[str, list[str]] = {}
    for stack in STACKS:
        sections.setdefault(section(stack, outcomes, numbers), []).append(stack)
    parts = [HEAD.format(mark=WORKS, rows=rows, error=max(map(max, errors.values())), **counts, **facts)]
    parts += [f"## {' · '.join(stacks)}\n\n{tables}" for tables, stacks in sections.items()]
    numbered = "".join(f"{number}. {sentence}\n" for number, sentence in enumerate(sentences, start=1))
    return "\n".join([*parts, f"## Sentences\n\n{numbered}"])


def read_page(text: str, stack: str) -> dict[Cell, set[str]]:
    """What a page says of each cell of a stack; of cells that share an entry, what it says of one of them."""
    _, *parts = text.split("\n## ")
    sentences = dict(re.findall(r"^(\d+)\. (.*)$", parts[-1], re.MULTILINE))
    tables = next(part for part in parts if stack in part.partition("\n")[0].split(" · "))
    said = {}
    for lines, columns in zip(re.findall(r"(?:\|.*\n)+", tables), (SCORES_COLUMNS, OTHER_COLUMNS), strict=True):
        (_, *names), _, *rows = (line.strip("| ").split(" | ") for line in lines.splitlines())
        for words, *entries in rows:
            for name, entry in zip(names, entries, strict=True):
                kernel, patterns = columns[name]
                each = {sentences.get(number, number) for number in entry.split(", ")}
                named = itertools.product([stack], words.split(", "), patterns, [kernel])
                said |= dict.fromkeys(itertools.starmap(Cell, named), each)
    return said
