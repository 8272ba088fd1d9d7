"""Peptides: bonds, angles and torsions are those of the table; the fold is that of the sequence alone."""

import json
import math

import numpy as np
import pytest

from errors import raises_sentence
from qkv.scripts.example_data.peptides import BONDS, TORSIONS, fold, peptides
from recipes import recipe_of


def torsion(one, two, three, four) -> float:
    """The angle in degrees between two planes, by their normals."""
    first, second = np.cross(two - one, three - two), np.cross(three - two, four - three)
    sign = math.copysign(1, np.dot(np.cross(first, second), three - two))
    cosine = np.dot(first, second) / np.linalg.norm(first) / np.linalg.norm(second)
    return sign * math.degrees(math.acos(max(min(cosine, 1), -1)))


def test_atoms_stand_as_the_table_says() -> None:
    chain = "".join(TORSIONS)
    (atoms,) = fold([chain])
    for number in range(len(chain) - 1):
        nitrogen, alpha, carbon, oxygen = atoms[number]
        following = atoms[number + 1]
        bonds = {"alpha": (nitrogen, alpha), "carbon": (alpha, carbon), "oxygen": (carbon, oxygen),
                 "nitrogen": (carbon, following[0])}  # fmt: skip
        for name, (one, other) in bonds.items():
            assert np.linalg.norm(one - other) == pytest.approx(BONDS[name][0])
        assert torsion(nitrogen, alpha, carbon, following[0]) == pytest.approx(TORSIONS[chain[number]][1], abs=1e-6)
        assert torsion(carbon, *following[:3]) == pytest.approx(TORSIONS[chain[number + 1]][0], abs=1e-6)
        assert abs(torsion(alpha, carbon, *following[:2])) == pytest.approx(180, abs=1e-4)
    helix = fold(["A" * 12])[0][:, 1]
    assert np.linalg.norm(helix[4] - helix[0]) == pytest.approx(6.2, abs=0.3)  # 1.5 Å of rise, 3.6 residues a turn


def test_chains_are_different_and_fold_alike_beside_others() -> None:
    data = peptides(recipe_of(text=dict(made=30, length=16)))
    chains = data.texts["train"]
    assert len(set(chains)) == 30 and {len(chain) for chain in chains} <= set(range(8, 17))
    for chain, target in zip(chains, data.targets["train"], strict=True):
        assert np.allclose(json.loads(target), fold([chain])[0], atol=6e-4)
    with raises_sentence("text.length=5"):
        peptides(recipe_of(text=dict(length=5)))
