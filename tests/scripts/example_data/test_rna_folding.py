"""Structures of least energy are those that are found by trying all structures of a chain."""

from functools import cache
from math import log

import numpy as np
import pytest

from errors import raises_sentence
from qkv.scripts.data.text_columns import partners_of
from qkv.scripts.example_data.rna_folding import BASES, TABLES, Folding, fold, rna_folds
from recipes import recipe_of

PAIRS = {"AU", "UA", "CG", "GC", "GU", "UG"}
Structure = frozenset[tuple[int, int]]


def structures(chain: str) -> list[Structure]:
    """All sets of nested pairs, each with three bases between its two or more."""

    @cache
    def between(first: int, end: int) -> list[Structure]:
        if first >= end:
            return [frozenset()]
        found = list(between(first + 1, end))
        for last in range(first + 4, end):
            if chain[first] + chain[last] in PAIRS:
                inside, behind = between(first + 1, last), between(last + 1, end)
                found += [frozenset([(first, last)]) | one | other for one in inside for other in behind]
        return found

    return between(0, len(chain))


def pairs_of(structure: str) -> Structure:
    return frozenset((first, last) for first, last in enumerate(partners_of(structure).tolist()) if first < last)


def inner_pairs(pair: tuple[int, int], structure: Structure) -> list[tuple[int, int]]:
    """The pairs inside a pair that no other pair encloses there."""
    inside = [other for other in structure if pair[0] < other[0] and other[1] < pair[1]]
    return [other for other in inside if not any(one[0] < other[0] and other[1] < one[1] for one in inside)]


def inner_loop(left: int, right: int) -> float:
    """The cost of unpaired bases between two pairs."""
    if left + right > 6:
        return float("inf")
    if left and right:
        return TABLES["interior_loops"][left + right] + TABLES["asymmetry"] * abs(left - right)
    return TABLES["bulges"][left + right] if left + right else 0


def energy(chain: str, structure: Structure) -> float:
    """The sum over the loops that pairs close; infinite for one that is not allowed."""
    total = 0.0
    for first, last in structure:
        inner, unpaired = inner_pairs((first, last), structure), last - first - 1
        if not inner:
            total += TABLES["hairpins"].get(unpaired) or round(64 + 10 * 1.75 * 0.61626 * log(unpaired / 9))
        elif len(inner) > 1:
            total += TABLES["branching"] + TABLES["branch"] * (len(inner) + 1)
        else:
            ((begin, end),) = inner
            stack = TABLES["stacks"][chain[first] + chain[last]][chain[begin] + chain[end]]
            left, right = begin - first - 1, last - end - 1
            total += inner_loop(left, right) + (stack if left + right <= 1 else 0)
    return total


@pytest.mark.parametrize("branching", [93, -80], ids=["as published", "branching loops for nothing"])
def test_no_structure_of_a_short_chain_has_less_energy(branching: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "branching", branching)
    random = np.random.default_rng(0)
    # Of 13 bases on there are hairpins side by side; more Gs and Cs fold more often.
    drawn = [random.choice([*BASES], size=size, p=[0.15, 0.35, 0.35, 0.15]) for size in random.integers(5, 17, size=60)]
    chains = ["".join(each) for each in drawn]
    ties = folds = branchings = 0
    for chain, folded in zip(chains, fold(chains), strict=True):
        energies = {structure: energy(chain, structure) for structure in structures(chain)}
        least = min(energies.values())
        best = [structure for structure, own in energies.items() if own == least]
        assert (folded is None) == (len(best) > 1) and (folded is None or pairs_of(folded) == best[0]), chain
        assert Folding(np.array([[BASES.index(base) for base in chain]])).whole.energies[-1, 0] == least
        ties += len(best) > 1
        folds += bool(best[0])
        branchings += any(len(inner_pairs(pair, best[0])) > 1 for pair in best[0])
    assert ties and folds > 10 and (branchings > 0) == (branching < 0)


def test_chains_that_are_drawn_fold_into_allowed_pairs() -> None:
    data = rna_folds(recipe_of(text=dict(made=60, length=34)))
    chains, structures = data.texts["train"], data.targets["train"]
    assert len(set(chains)) == 60 and fold(chains) == structures
    assert {len(chain) for chain in chains} <= set(range(16, 33)) and len({len(chain) for chain in chains}) > 5
    for chain, structure in zip(chains, structures, strict=True):
        assert pairs_of(structure) and {chain[first] + chain[last] for first, last in pairs_of(structure)} <= PAIRS
    with raises_sentence("text.length=17", "18"):
        rna_folds(recipe_of(text=dict(made=60, length=17)))
