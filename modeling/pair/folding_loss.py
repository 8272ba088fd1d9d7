"""The loss of a folded chain, and what its confidence is measured by: errors in space, frame by frame.

Shapes: B batch, L residues, A atoms of a residue, N layers.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..heads.loss import IGNORED, Count, normalise
from .block import PairOutput
from .frames import Frames, distance_bins_of, frames_of_backbone, rotation_of
from .structure import SCALE, Structure

CLAMP = 10.0  # Å
DISTANCES = (2.0, 22.0)  # Å, of the first and the last edge of a distogram
MOST_ERROR = 31.0  # Å, of the last edge of aligned errors
ALPHA = 1  # CA among the atoms of a residue


@dataclass
class FoldingOutput(PairOutput):
    """Output of a model that folds: loss, the predicted structure and how sure the model is of it.

    Shapes: positions in Å (B, L, A, 3), frames (B, L, 7) as quaternions and translations, angles (B, L, 7, 2), plddt
    (B, L, 37) between 0 and 1, ptm (B,), predicted_aligned_error in Å (B, L, L), distogram_logits (B, L, L, V),
    lddt_logits (B, L, 37, V), ptm_logits (B, L, L, V), lm_logits (B, L, vocabulary) or None
    """

    loss: Tensor | None = None
    positions: Tensor | None = None
    frames: Tensor | None = None
    angles: Tensor | None = None
    plddt: Tensor | None = None
    ptm: Tensor | None = None
    predicted_aligned_error: Tensor | None = None
    distogram_logits: Tensor | None = None
    lddt_logits: Tensor | None = None
    ptm_logits: Tensor | None = None
    lm_logits: Tensor | None = None


class Target(NamedTuple):
    """True positions (B, L, A, 3), which of them are known (B, L, A), and which backbones are (B, L)."""

    positions: Tensor
    known: Tensor
    frames: Tensor


def target_of(labels: Tensor, mask: Tensor | None, structure: Structure) -> Target:
    """Read labels (B, L, A, 3), in which unknown atoms are -100 three times; atoms of padding are unknown."""
    positions = structure.positions[-1]
    shape = (*positions.shape[:2], labels.shape[2] if labels.ndim == 4 else 0, 3)
    if labels.shape != shape or not 3 <= shape[2] <= positions.shape[2]:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} do not fit chains of shape {tuple(shape[:2])}; give positions of "
            f"N, CA, C and further atoms, {(*shape[:2], '3 to 14', 3)}, with -100 for atoms that are unknown"
        )
    labels = labels.to(positions)
    known = (labels != IGNORED).any(-1)
    if mask is not None:
        known = known & mask[..., None]
    known = known & structure.atoms[:, :, : known.shape[2]]
    return Target(labels.where(known[..., None], 0), known, known[..., :3].all(-1))


def masked_mean(values: Tensor, due: Tensor) -> Tensor:
    """Average values where they are due, chain by chain, 0 where none is: (B, ...) -> (B,)."""
    return (values * due).flatten(1).sum(-1) / due.flatten(1).sum(-1).clamp(min=1)


def aligned_errors(frames: Frames, points: Tensor, true_frames: Frames, true_points: Tensor) -> Tensor:
    """Compare each point as each frame sees it: frames (B, L), points (B, M, 3), twice -> squares (B, L, M).

    Source: Jumper et al. 2021, supplement, algorithm 28, lines 1 to 3, https://doi.org/10.1038/s41586-021-03819-2
    """
    # A product of matrices for each frame, which stores no rotation for each pair.
    seen = (points[:, None] - frames.shift[:, :, None]) @ frames.rotation
    return (seen - (true_points[:, None] - true_frames.shift[:, :, None]) @ true_frames.rotation).square().sum(-1)


def frame_aligned_point_error(
    frames: Frames, points: Tensor, true_frames: Frames, true_points: Tensor, due: Tensor, epsilon: float = 1e-4
) -> Tensor:
    """Average clamped distances over all frames and points that are due (B, L, M), in units of 10 Å: -> (B,).

    Source: Jumper et al. 2021, supplement, algorithm 28, https://doi.org/10.1038/s41586-021-03819-2
    """
    errors = (aligned_errors(frames, points, true_frames, true_points) + epsilon).sqrt()
    return masked_mean(errors.clamp(max=CLAMP) / SCALE, due)


def local_distance_test(points: Tensor, true_points: Tensor, known: Tensor) -> Tensor:
    """Return the share of distances below 15 Å that are right within 0.5, 1, 2 and 4 Å: 2 x (B, L, 3) -> (B, L).

    Source: Jumper et al. 2021, supplement, §1.9.6, https://doi.org/10.1038/s41586-021-03819-2
    """
    true, predicted = torch.cdist(true_points, true_points), torch.cdist(points, points)
    others = ~torch.eye(points.shape[1], dtype=torch.bool, device=points.device)
    due = (true < 15) & known[:, :, None] & known[:, None] & others
    right = sum(((true - predicted).abs() < limit).to(points.dtype) for limit in (0.5, 1, 2, 4)) / 4
    return (right * due).sum(-1) / due.sum(-1).clamp(min=1)


def folding_loss(
    structure: Structure,
    output: FoldingOutput,
    labels: Tensor,
    mask: Tensor | None,
    count: Count,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Add half of FAPE of all atoms in backbone frames, half of that of CA in all layers, distances and confidence.

    A chain counts as often as it has coordinates, so that the losses of parts of a batch add up. Weights are those of
    AlphaFold 2; angles, and bonds of the final structure, have no loss of their own.

    Source: Jumper et al. 2021, supplement, §1.9, eq. 7, https://doi.org/10.1038/s41586-021-03819-2
    """
    target = target_of(labels, mask, structure)
    true = frames_of_backbone(target.positions)
    frames = [Frames(rotation_of(each[..., :4]), each[..., 4:]) for each in structure.frames]
    alphas, true_alphas = structure.positions[:, :, :, ALPHA], target.positions[:, :, ALPHA]
    pairs = target.frames[:, :, None] & target.known[:, None, :, ALPHA]
    layers = [
        frame_aligned_point_error(own, points, true, true_alphas, pairs)
        for own, points in zip(frames, alphas, strict=True)
    ]
    atoms = structure.positions[-1, :, :, : target.known.shape[2]].flatten(1, 2)
    due = target.frames[:, :, None] & target.known.flatten(1)[:, None]
    final = frame_aligned_point_error(frames[-1], atoms, true, target.positions.flatten(1, 2), due)
    scored = score_losses(output, frames[-1], alphas[-1].detach(), true, target, label_smoothing)
    losses = 0.5 * final + 0.5 * torch.stack(layers).mean(0) + scored
    sizes = 3 * target.known.flatten(1).sum(-1)
    return normalise((losses * sizes).sum(), sizes.sum().clamp(min=1), count)


def score_losses(
    output: Any, frames: Frames, points: Tensor, true: Frames, target: Target, label_smoothing: float
) -> Tensor:
    """Add the cross entropies of distances, lDDT and aligned errors, predicted against true: -> (B,).

    All atoms of a residue learn the lDDT of its CA.
    """
    pairs = target.frames[:, :, None] & target.frames[:, None]
    true_points = target.positions[:, :, ALPHA]
    frames = Frames(frames.rotation.detach(), frames.shift.detach())
    errors = aligned_errors(frames, points, true, true_points).sqrt()
    test = local_distance_test(points, true_points, target.known[:, :, ALPHA])
    bins = output.lddt_logits.shape[-1]
    distances = distance_bins_of(target.positions, *DISTANCES, output.distogram_logits.shape[-1])
    edges = torch.linspace(0, MOST_ERROR, output.ptm_logits.shape[-1] - 1, device=errors.device, dtype=errors.dtype)
    tested = (test * bins).long().clamp(max=bins - 1)[..., None].expand(output.lddt_logits.shape[:-1])
    return (
        0.3 * masked_mean(scores_of(output.distogram_logits, distances, label_smoothing), pairs)
        + 0.01 * masked_mean(scores_of(output.lddt_logits, tested, label_smoothing).mean(-1), target.frames)
        + 0.01 * masked_mean(scores_of(output.ptm_logits, torch.bucketize(errors, edges), label_smoothing), pairs)
    )


def scores_of(logits: Tensor, bins: Tensor, label_smoothing: float) -> Tensor:
    """Return the negative log-likelihood of each bin, in single precision at least: (..., V), (...) -> (...)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    scores = F.cross_entropy(logits, bins.flatten(), reduction="none", label_smoothing=label_smoothing)
    return scores.view(bins.shape)


def expected_lddt(logits: Tensor) -> Tensor:
    """Return pLDDT between 0 and 1, the mean of bins: (..., bins) -> (...)."""
    bins = logits.shape[-1]
    centers = (torch.arange(bins, device=logits.device, dtype=logits.dtype) + 0.5) / bins
    return logits.softmax(-1) @ centers


def error_centers(logits: Tensor) -> Tensor:
    """Return the middle in Å of each bin of aligned errors (bins,)."""
    bins = logits.shape[-1]
    return (torch.arange(bins, device=logits.device, dtype=logits.dtype) + 0.5) * MOST_ERROR / (bins - 2)


def expected_tm(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return pTM of chains, seen from the residue that it is best for: scores of errors (B, L, L, bins) -> (B,).

    Source: Jumper et al. 2021, supplement, §1.9.7, eq. 39, https://doi.org/10.1038/s41586-021-03819-2
    """
    real = logits.new_ones(logits.shape[:2]) if mask is None else mask.to(logits.dtype)
    lengths = real.sum(-1).clamp(min=19)
    scale = 1.24 * (lengths - 15) ** (1 / 3) - 1.8
    gains = 1 / (1 + (error_centers(logits) / scale[:, None]) ** 2)
    terms = (logits.softmax(-1) * gains[:, None, None]).sum(-1)
    means = (terms * real[:, None]).sum(-1) / real.sum(-1, keepdim=True).clamp(min=1)
    return (means * real).amax(-1)
