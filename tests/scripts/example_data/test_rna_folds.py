"""Chains of RNA fold, and are the same every time."""

from errors import raises_sentence
from qkv.scripts.data.structures import partners_of
from qkv.scripts.example_data.rna_folding import fold
from qkv.scripts.example_data.rna_folds import rna_folds
from recipes import recipe_of

RECIPE = recipe_of(text=dict(made=60, length=34))


def test_chains_fold_into_allowed_pairs() -> None:
    data = rna_folds(RECIPE)
    chains, structures = data.sequences["train"], data.structures["train"]
    assert len(set(chains)) == 60 and fold(chains) == structures
    assert {len(chain) for chain in chains} <= set(range(16, 33)) and len({len(chain) for chain in chains}) > 5
    for chain, structure in zip(chains, structures, strict=True):
        pairs = [(first, last) for first, last in enumerate(partners_of(structure)) if first < last]
        assert pairs and {"".join(sorted(chain[first] + chain[last])) for first, last in pairs} <= {"AU", "CG", "GU"}
        assert all(last - first > 3 for first, last in pairs)
    assert data.divided(RECIPE).sequences["test"] == chains[9::10]


def test_too_short_chains_are_refused() -> None:
    with raises_sentence("text.length=17", "18"):
        rna_folds(recipe_of(text=dict(made=60, length=17)))
