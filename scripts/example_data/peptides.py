"""Draw peptides of helices, strands and turns, each residue of which has torsion angles of its own, and place atoms.

The fold follows from the sequence alone, residue by residue; to place an atom all angles before it have to be added up.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.common.files import table
from qkv.scripts.data.corpus import FoldedChains
from qkv.scripts.recipes.schema import Recipe

TABLES = table(__file__)
SEGMENTS = TABLES["helix"], TABLES["strand"]
TURNS, BONDS = TABLES["turns"], TABLES["bonds"]
TORSIONS = TURNS | {letter: each["torsions"] for each in SEGMENTS for letter in each["letters"]}
SHORTEST, LONGEST_TURN, TOGETHER = 8, 3, 256  # residues of the longest chains and of a turn; chains placed at once
HOME, TITLE = "https://doi.org/10.1073/pnas.37.4.205", "peptides of ideal helices, strands and turns"
Points = NDArray[np.float64]


def peptides(recipe: Recipe) -> FoldedChains:
    """Draw `text.made` different peptides of half of `text.length` residues to all of it, and fold them."""
    random, most, chains = np.random.default_rng(0), recipe.text.length, dict[str, None]()
    if most < SHORTEST:
        raise ValueError(f"text.length={most} has no room for helices and strands; take {SHORTEST} or more")
    while len(chains) < recipe.text.made:
        chains[draw(random, int(random.integers(most // 2, most + 1)))] = None
    drawn, targets = list(chains), list[str]()
    for start in range(0, len(drawn), TOGETHER):
        own = drawn[start : start + TOGETHER]
        placed = fold(own).round(3).tolist()
        targets += [json.dumps(atoms[: len(chain)]) for chain, atoms in zip(own, placed, strict=True)]
    return FoldedChains("peptides", TITLE, HOME, texts={"train": drawn}, targets={"train": targets})


def draw(random: np.random.Generator, length: int) -> str:
    """Draw a chain: helices or strands, with turns between them."""
    chain = ""
    while len(chain) < length:
        segment = SEGMENTS[random.integers(2)]
        for letters, lengths in ((segment["letters"], segment["lengths"]), ("".join(TURNS), (1, LONGEST_TURN + 1))):
            chain += "".join(random.choice([*letters], random.integers(*lengths)))
    return chain[:length]


def fold(chains: Sequence[str]) -> Points:
    """Place N, CA, C and O, residue after residue; behind the end of a shorter chain stands anything: (B, L, 4, 3)."""
    most = max(map(len, chains))
    angles = np.array([[TORSIONS[letter] for letter in chain.ljust(most, "A")] for chain in chains], float)
    ones = np.ones((len(chains), 1))
    last = np.array([0.0, 1.0, 0.0]) * ones, np.zeros(3) * ones, np.array([BONDS["alpha"][0], 0.0, 0.0]) * ones
    last = (*last[1:], place(*last, "carbon", np.zeros(len(chains))))
    residues = []
    for number in range(most):
        nitrogen, alpha, carbon = last
        psi = angles[:, number, 1]
        residues.append(np.stack([*last, place(*last, "oxygen", psi + 180)], axis=1))
        following = place(nitrogen, alpha, carbon, "nitrogen", psi)
        next_alpha = place(alpha, carbon, following, "alpha", np.full(len(chains), 180.0))
        phi = angles[:, min(number + 1, most - 1), 0]
        last = following, next_alpha, place(carbon, following, next_alpha, "carbon", phi)
    return np.stack(residues, axis=1)


def place(first: Points, second: Points, third: Points, atom: str, torsion: Points) -> Points:
    """Place an atom behind three others, by its bond, its angle and the torsion (B,): 3 x (B, 3) -> (B, 3).

    Source: Parsons et al. 2005, NeRF, https://doi.org/10.1002/jcc.20237
    """
    length, angle = BONDS[atom][0], np.radians(BONDS[atom][1])
    along = unit(third - second)
    normal = unit(np.cross(second - first, along))
    turned = np.radians(torsion)[:, None]
    sideways = np.cos(turned) * np.cross(normal, along) + np.sin(turned) * normal
    return third + length * (np.sin(angle) * sideways - np.cos(angle) * along)


def unit(vectors: Any) -> Points:
    """Return vectors of length one."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
