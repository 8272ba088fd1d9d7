"""Scores of predicted structures: lDDT and the deviation after superposition, of CA.

Sources: lDDT: Mariani et al. 2013, https://doi.org/10.1093/bioinformatics/btt473; superposition: Kabsch 1976,
    https://doi.org/10.1107/S0567739476001873
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from qkv.modeling.pair.folding_loss import local_distance_test

Scores = dict[str, float]


def folds(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Score positions of CA (L, 3), NaN for unknown ones: means over chains of lDDT, and of the root-mean-square
    deviation in Å after superposition; beside them pLDDT, to be compared with lDDT.
    """
    return fold_scores(np.sum(list(map(fold_counts, predictions, references)), axis=0))


def fold_counts(predicted: Any, reference: Any) -> NDArray[np.float64]:
    """Return the terms of a chain in the sums of `fold_scores`; zeros for one of fewer than three known residues."""
    known = ~np.isnan(reference).any(-1)
    points, true = np.asarray(predicted["ca"], float)[known], np.asarray(reference, float)[known]
    if len(true) < 3:
        return np.zeros(4)
    one, other = (torch.from_numpy(each)[None] for each in (points, true))
    lddt = float(local_distance_test(one, other, torch.ones(1, len(true), dtype=torch.bool)).mean())
    rmsd = np.sqrt(np.square(superposed(points, true) - true).sum(1).mean())
    return np.array([1, lddt, rmsd, np.mean(np.asarray(predicted["plddt"])[known])])


def superposed(points: Any, onto: Any) -> Any:
    """Turn and move points so that the squares of their distances to others are least: 2 x (L, 3) -> (L, 3)."""
    rotation, _ = Rotation.align_vectors(onto - onto.mean(0), points - points.mean(0))
    return rotation.apply(points - points.mean(0)) + onto.mean(0)


def fold_scores(sums: Any) -> Scores:
    """Return the means over chains."""
    chains, *totals = map(float, sums)
    return {name: total / max(chains, 1) for name, total in zip(("lddt_ca", "rmsd", "plddt"), totals, strict=True)}
