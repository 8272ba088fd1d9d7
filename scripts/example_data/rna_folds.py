"""Chains of RNA drawn at random, each with the secondary structure that it folds into."""

import numpy as np

from qkv.scripts.data.structures import SecondaryStructures
from qkv.scripts.example_data.rna_folding import BASES, fold
from qkv.scripts.recipes.schema import Recipe

HOME, TITLE = "https://doi.org/10.1093/nar/9.1.133", "random chains of RNA and their structures of least energy"
SHORTEST = 16  # bases of the longest chains: most shorter ones fold into nothing


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
    return SecondaryStructures("rna-folds", TITLE, HOME, sequences=sequences, structures=structures)
