"""Frames: rotations and translations, of backbones and of the groups of atoms that turn with torsion angles.

Shapes: B batch, L residues, G = 8 rigid groups, A = 14 atoms. Amino acids are numbers 0 to 20, in AlphaFold 2's order.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.models.esm.openfold_utils import residue_constants

# Of a group: the first is the backbone, then three torsions of it, and a chain of four in the side chain.
FIRST_CHI = 4
UNKNOWN = residue_constants.restype_num


class Frames(NamedTuple):
    """Rotations (..., 3, 3) and translations (..., 3): x -> R x + t."""

    rotation: Tensor
    shift: Tensor

    def over(self, dims: int) -> "Frames":
        """Add dimensions of size one behind those of the frames."""
        shape = self.shift.shape[:-1] + (1,) * dims
        return Frames(self.rotation.reshape(*shape, 3, 3), self.shift.reshape(*shape, 3))

    def apply(self, points: Tensor) -> Tensor:
        """Map points (..., 3) from the frames to the outside."""
        return rotate_points(self.rotation, points) + self.shift

    def invert(self, points: Tensor) -> Tensor:
        """Map points (..., 3) from the outside into the frames."""
        return rotate_points(self.rotation.mT, points - self.shift)

    def compose(self, inner: "Frames") -> "Frames":
        """Return the frames that apply `inner`, then these."""
        return Frames(self.rotation @ inner.rotation, self.apply(inner.shift))


def rotate_points(rotation: Tensor, points: Tensor) -> Tensor:
    """Multiply (..., 3, 3) by (..., 3)."""
    return (rotation * points[..., None, :]).sum(-1)


def rotation_of(quaternion: Tensor) -> Tensor:
    """Return the rotation of a unit quaternion: (..., 4) -> (..., 3, 3).

    Source: Jumper et al. 2021, supplement, algorithm 23, line 3, https://doi.org/10.1038/s41586-021-03819-2
    """
    a, b, c, d = quaternion.unbind(-1)
    rows = (
        (a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)),
        (2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)),
        (2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d),
    )
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def turn(quaternion: Tensor, vector: Tensor) -> Tensor:
    """Multiply unit quaternions (..., 4) from the right by (1, vector) (..., 3), and normalise.

    Source: Jumper et al. 2021, supplement, algorithm 23, lines 1 and 2, https://doi.org/10.1038/s41586-021-03819-2
    """
    real, imaginary = quaternion[..., :1], quaternion[..., 1:]
    scalar = -(imaginary * vector).sum(-1, keepdim=True)
    product = torch.cat((scalar, real * vector + torch.linalg.cross(imaginary, vector)), dim=-1)
    return F.normalize(quaternion + product, dim=-1)


def frames_of_backbone(positions: Tensor) -> Frames:
    """Return the frames at CA that N and C span: (..., 3 or more atoms, 3) -> (...).

    Source: Jumper et al. 2021, supplement, algorithm 21, https://doi.org/10.1038/s41586-021-03819-2
    """
    nitrogen, alpha, carbon = positions[..., :3, :].unbind(-2)
    first = F.normalize(carbon - alpha, dim=-1)
    second = nitrogen - alpha
    second = F.normalize(second - first * (first * second).sum(-1, keepdim=True), dim=-1)
    return Frames(torch.stack((first, second, torch.linalg.cross(first, second)), dim=-1), alpha)


def frames_of_torsions(backbone: Frames, angles: Tensor, residues: Tensor) -> Frames:
    """Return the frames of all groups: backbone (B, L), (sin, cos) of torsions (B, L, G - 1, 2), (B, L) -> (B, L, G).

    Source: Jumper et al. 2021, supplement, algorithm 24, lines 1 to 10, https://doi.org/10.1038/s41586-021-03819-2;
        the order of sin and cos: its code
    """
    default = constant("restype_rigid_group_default_frame", angles)[residues]
    sin, cos = F.pad(angles, (0, 0, 1, 0)).unbind(-1)
    cos = torch.cat((torch.ones_like(cos[..., :1]), cos[..., 1:]), dim=-1)
    zero, one = torch.zeros_like(sin), torch.ones_like(sin)
    rows = ((one, zero, zero), (zero, cos, -sin), (zero, sin, cos))
    turned = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
    groups = Frames(default[..., :3, :3] @ turned, default[..., :3, 3])
    chain = [Frames(groups.rotation[..., i, :, :], groups.shift[..., i, :]) for i in range(groups.shift.shape[-2])]
    for i in range(FIRST_CHI + 1, len(chain)):
        chain[i] = chain[i - 1].compose(chain[i])
    rotations, shifts = zip(*chain, strict=True)
    return backbone.over(1).compose(Frames(torch.stack(rotations, dim=-3), torch.stack(shifts, dim=-2)))


def place_atoms(groups: Frames, residues: Tensor) -> Tensor:
    """Place the atoms of amino acids, zeros where one has fewer: frames of groups (B, L, G), (B, L) -> (B, L, A, 3).

    Source: Jumper et al. 2021, supplement, algorithm 24, line 11, https://doi.org/10.1038/s41586-021-03819-2
    """
    group = constant("restype_atom14_to_rigid_group", residues)[residues]
    own = Frames(
        groups.rotation.take_along_dim(group[..., None, None], dim=-3),
        groups.shift.take_along_dim(group[..., None], dim=-2),
    )
    positions = own.apply(constant("restype_atom14_rigid_group_positions", groups.shift)[residues])
    return positions * atoms_of(residues)[..., None]


def atoms_of(residues: Tensor) -> Tensor:
    """Tell which of 14 atoms amino acids have: (B, L) -> (B, L, 14)."""
    return constant("restype_atom14_mask", residues)[residues] > 0


def constant(name: str, like: Tensor) -> Tensor:
    """Return a table of amino acids in the dtype and on the device of a tensor."""
    return torch.as_tensor(getattr(residue_constants, name), dtype=like.dtype, device=like.device)


def virtual_beta(positions: Tensor) -> Tensor:
    """Return where CB stands beside N, CA and C of an ideal residue, glycine's too: (..., 3 or more, 3) -> (..., 3).

    Source: Lin et al. 2023, ESMFold's code (`distogram`), https://doi.org/10.1126/science.ade2574
    """
    nitrogen, alpha, carbon = positions[..., :3, :].unbind(-2)
    first, second = alpha - nitrogen, carbon - alpha
    normal = torch.linalg.cross(first, second)
    return -0.58273431 * normal + 0.56802827 * first - 0.54067466 * second + alpha


def distance_bins_of(positions: Tensor, low: float, high: float, count: int) -> Tensor:
    """Return numbers of the distances between CB: below `low`, beyond `high` and between: (B, L, A, 3) -> (B, L, L)."""
    beta = virtual_beta(positions)
    squares = (beta[..., None, :, :] - beta[..., :, None, :]).square().sum(-1)
    edges = torch.linspace(low, high, count - 1, device=beta.device, dtype=torch.float32).square()
    return torch.bucketize(squares, edges.to(squares.dtype))
