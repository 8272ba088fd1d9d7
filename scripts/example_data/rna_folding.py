"""Fold RNA: find the secondary structure of least energy, exactly, and whether it is the only one.

A structure is a set of nested pairs AU, GC and GU. Pairs divide it into loops, and its energy is the sum of theirs:

- two pairs, one right inside the other: a stack, the only loop that lowers the energy, by what the four bases are
- one pair: a hairpin of 3 unpaired bases or more
- two pairs with 1 to 6 unpaired bases on one side (bulge) or both (interior loop)
- three pairs or more: a branching loop
- what no pair encloses costs nothing.

Which bases pair therefore depends on the whole chain: a helix has to pay for the loop it closes, and competes with all
helices that need one of its bases or cross it. Energies are those of Turner's tables (`rna_folding.yaml`) without bases
beside pairs, special loops and ends of helices, with which programs such as RNAfold find other structures.

Source: Zuker & Stiegler 1981, https://doi.org/10.1093/nar/9.1.133; of nested pairs alone Nussinov & Jacobson 1980,
    https://doi.org/10.1073/pnas.77.11.6309
"""

from collections.abc import Sequence
from functools import cache
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.common.files import table
from qkv.scripts.data.text_columns import SecondaryStructures
from qkv.scripts.recipes.schema import Recipe

TABLES = table(__file__)
HOME, TITLE = "https://doi.org/10.1093/nar/9.1.133", "random chains of RNA and their structures of least energy"
SHORTEST = 16  # bases of the longest chains: most shorter ones fold into nothing
BASES = "ACGU"
NONE = len(BASES)  # the number of no base, behind the end of a shorter chain
INNER = max(TABLES["bulges"])  # unpaired bases of a bulge or an interior loop, at most
SPAN = min(TABLES["hairpins"]) + 1  # from one base of a pair to the other, at least
# How hairpins above the table grow, times the logarithm. Source: Mathews et al. 2004
GROWTH = 17.5 * 1.987e-3 * 310.15
IMPOSSIBLE = 10**6  # tenths of kcal/mol, more than any structure has
TOGETHER = 512  # chains that are folded at once
# Energies of choices (choices, chains), and whether each is that of several structures.
Choices = tuple[NDArray[np.int32], NDArray[np.bool_]]


# Energies of stacks (5, 5, 5, 5): by the outer pair from 5' to 3', then the inner one.
STACKS = np.full((NONE + 1,) * 4, IMPOSSIBLE, np.int32)
for outer, row in TABLES["stacks"].items():
    for inner, energy in row.items():
        STACKS[tuple(map(BASES.index, outer + inner))] = energy
CAN_PAIR = np.asarray((STACKS < IMPOSSIBLE).any((2, 3)))


def hairpin(unpaired: int) -> int:
    """Return the energy of a hairpin of so many bases."""
    most = max(TABLES["hairpins"])
    return int(TABLES["hairpins"][min(unpaired, most)]) + round(GROWTH * log(max(unpaired / most, 1)))


def inner_loop(left: int, right: int) -> int:
    """Return the energy of a bulge or interior loop with so many unpaired bases; 0 of a stack, whose bases decide."""
    if left and right:
        return int(TABLES["interior_loops"][left + right] + TABLES["asymmetry"] * abs(left - right))
    return int(TABLES["bulges"].get(left + right, 0))


@cache
def inner_loops(span: int) -> NDArray[np.int32]:
    """Return the unpaired bases, left and right, of all loops that a pair of that span closes with one pair inside.

    Energies follow as a third column. The first three are a stack and the bulges of one base, which stack, too.
    """
    most = min(INNER, span - 2 - SPAN)
    sizes = [(left, both - left) for both in range(most + 1) for left in range(both + 1)]
    return np.array([(*size, inner_loop(*size)) for size in sizes], np.int32).reshape(-1, 3)


class Best:
    """Of parts of chains: the least energy, the number of the choice that has it, and whether several structures do."""

    def __init__(self, *shape: int) -> None:
        self.energies = np.full(shape, IMPOSSIBLE, np.int32)
        self.choices = np.zeros(shape, np.int16)
        self.tied = np.zeros(shape, np.bool_)

    def __getitem__(self, parts: Any) -> Choices:
        return self.energies[parts], self.tied[parts]

    def settle(self, part: Any, choices: Sequence[Choices]) -> None:
        """Take the choice of least energy for a part."""
        energies, tied = (np.vstack(each) for each in zip(*choices, strict=True))
        chosen = energies.argmin(0)[None]
        least = np.take_along_axis(energies, chosen, 0)
        self.energies[part], self.choices[part] = least[0], chosen[0]
        self.tied[part] = np.take_along_axis(tied, chosen, 0)[0] | ((energies == least).sum(0) > 1)


def add(one: Choices, other: Choices, cost: Any = 0) -> Choices:
    """Return the energies of two parts together, and a cost."""
    return one[0] + other[0] + cost, one[1] | other[1]


class Folding:
    """The best structures of chains (chains, bases), which are folded together.

    Of the bases from first to last `paired` is for structures in which these two pair, `branch` for one helix that
    begins with the first, `branches` for one helix or more, and `whole` is for any structure of the first bases. Each
    structure comes about by one series of choices, so that a tie is one of two structures.
    """

    def __init__(self, chains: NDArray[np.int64]) -> None:
        self.bases, (count, length) = chains.T, chains.shape
        self.paired, self.branch, self.branches = (Best(length, length, count) for _ in range(3))
        self.whole = Best(length + 1, count)
        self.whole.energies[: SPAN + 1] = 0
        self.nothing: Choices = np.zeros(count, np.int32), np.zeros(count, np.bool_)
        for span in range(SPAN, length):
            for first in range(length - span):
                self.settle_paired(first, first + span)
                self.settle_branches(first, first + span)
        for last in range(SPAN, length):
            begins = slice(0, last - SPAN + 1)
            self.whole.settle(last + 1, [self.whole[last], add(self.whole[begins], self.paired[begins, last])])

    def settle_paired(self, first: int, last: int) -> None:
        """Choose the loop that a pair closes: a hairpin, a loop with one pair inside, or one with several."""
        outer, (left, right, energy) = (self.bases[first], self.bases[last]), inner_loops(last - first).T
        inner = first + 1 + left, last - 1 - right
        stacked = np.zeros((len(left), len(outer[0])), np.int32)
        stacked[:3] = STACKS[(*outer, self.bases[inner[0][:3]], self.bases[inner[1][:3]])]
        choices = [
            add(self.nothing, self.nothing, hairpin(last - first - 1)),
            add(self.paired[inner], self.nothing, energy[:, None] + stacked),
            add(self.splits(first + 1, last - 1), self.nothing, TABLES["branching"] + TABLES["branch"]),
        ]
        self.paired.settle((first, last), choices)
        self.paired.energies[first, last, ~CAN_PAIR[outer]] = IMPOSSIBLE

    def settle_branches(self, first: int, last: int) -> None:
        """Choose the last base of the one helix, and where the last one of several begins."""
        closed = add(self.paired[first, last], self.nothing, TABLES["branch"])
        self.branch.settle((first, last), [self.branch[first, last - 1], closed])
        alone = self.branch[first : last - SPAN + 1, last]
        self.branches.settle((first, last), [alone, self.splits(first, last)])

    def splits(self, first: int, last: int) -> Choices:
        """Return the choices of where the last of two helices or more begins."""
        begin = first + SPAN
        end = max(last - SPAN, begin)
        return add(self.branches[first, begin:end], self.branch[begin + 1 : end + 1, last])

    def structure(self, chain: int, length: int) -> str:
        """Return a chain's best structure in dot-bracket notation."""
        symbols, parts = ["."] * length, [(self.whole, 0, len(self.bases) - 1)]
        while parts:
            best, first, last = parts.pop()
            if best is self.paired:
                symbols[first], symbols[last] = "(", ")"
            choice = int(best.choices[(last + 1, chain) if best is self.whole else (first, last, chain)])
            parts += self.inside(best, first, last, choice)
        return "".join(symbols)

    def inside(self, best: Best, first: int, last: int, choice: int) -> list[tuple[Best, int, int]]:
        """Return the parts of which a choice is made."""
        if best is self.whole:
            begin = choice - 1 if choice else last
            rest = [(self.whole, 0, begin - 1)] if begin else []
            return [*rest, (self.paired, begin, last)] if choice else rest
        if best is self.branch:
            return [(self.paired, first, last) if choice else (self.branch, first, last - 1)]
        if best is self.branches:
            alone = last - SPAN - first + 1
            return self.split(first, last, choice - alone) if choice >= alone else [(self.branch, first + choice, last)]
        loops = inner_loops(last - first)
        if choice > len(loops):
            return self.split(first + 1, last - 1, choice - 1 - len(loops))
        return [(self.paired, first + 1 + left, last - 1 - right) for left, right, _ in loops[choice - 1 : choice]]

    def split(self, first: int, last: int, number: int) -> list[tuple[Best, int, int]]:
        """Return the parts of one of the `splits`."""
        middle = first + SPAN + number
        return [(self.branches, first, middle), (self.branch, middle + 1, last)]


def fold(chains: Sequence[str]) -> list[str | None]:
    """Return the structure of least energy of each chain in dot-bracket notation; None where several have it."""
    order = sorted(range(len(chains)), key=lambda number: len(chains[number]))
    structures: list[str | None] = [None] * len(chains)
    for start in range(0, len(chains), TOGETHER):
        numbers = order[start : start + TOGETHER]
        bases = np.full((len(numbers), len(chains[numbers[-1]])), NONE)
        for row, number in zip(bases, numbers, strict=True):
            row[: len(chains[number])] = [BASES.index(base) for base in chains[number]]
        folding = Folding(bases)
        for chain, number in enumerate(numbers):
            if not folding.whole.tied[-1, chain]:
                structures[number] = folding.structure(chain, len(chains[number]))
    return structures


def rna_folds(recipe: Recipe) -> SecondaryStructures:
    """Draw `text.made` chains of RNA, and fold each into its structure of least energy, by rules solved exactly.

    Chains have half of `text.length` to all of it, less the two tokens of a tokenizer's template. Those that fold into
    nothing, and those with several structures of least energy, are drawn again.

    Source: Zuker & Stiegler 1981, https://doi.org/10.1093/nar/9.1.133, with energies of Mathews et al. 2004,
        https://doi.org/10.1073/pnas.0401799101
    """
    random, most = np.random.default_rng(0), recipe.text.length - 2
    if most < SHORTEST:
        raise ValueError(f"text.length={most + 2} has no room for chains that fold; take {SHORTEST + 2} or more")
    letters, folded = np.array([*BASES]), dict[str, str]()
    while missing := recipe.text.made - len(folded):
        lengths = random.integers(most // 2, most + 1, size=missing)
        drawn = letters[random.integers(len(letters), size=(missing, most))]
        chains = ["".join(row[:length]) for row, length in zip(drawn, lengths, strict=True)]
        pairs = zip(chains, fold(chains), strict=True)
        folded |= {chain: structure for chain, structure in pairs if structure and "(" in structure}
    sequences, structures = {"train": list(folded)}, {"train": list(folded.values())}
    return SecondaryStructures("rna-folds", TITLE, HOME, texts=sequences, targets=structures)
