"""Models that fold: frames, attention over points, atoms and losses are the supplement's, and nothing depends on a pose."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.models.esm.openfold_utils import Rigid, Rotation, residue_constants
from transformers.models.esm.openfold_utils.feats import torsion_angles_to_frames

import reference
import tiny
from comparison import EXACT, assert_same, draw, jittered, linear_of
from errors import raises_sentence
from qkv import QkvFoldingModel
from qkv.modeling.pair.folding_loss import (
    FoldingOutput,
    expected_lddt,
    expected_tm,
    folding_loss,
    frame_aligned_point_error,
    local_distance_test,
)
from qkv.modeling.pair.frames import Frames, frames_of_backbone, frames_of_torsions, place_atoms, rotation_of, turn
from qkv.modeling.pair.structure import InvariantPointAttention, Structure, StructureModule

REAL = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1]]).bool()
RESIDUES = torch.tensor([[2, 18, 11, 7], [0, 17, 1, 20]])


def some_frames(*shape: int) -> Frames:
    return Frames(rotation_of(F.normalize(draw(*shape, 4), dim=-1)), draw(*shape, 3))


def moved(frames: Frames) -> Frames:
    """The same frames after one turn and shift of the world."""
    world = Frames(rotation_of(F.normalize(draw(4), dim=-1)), 7 * draw(3))
    return world.over(frames.shift.ndim - 1).compose(frames)


def test_rotations_are_rotations_and_quaternions_multiply() -> None:
    quaternion, vector = F.normalize(draw(5, 4), dim=-1), draw(5, 3)
    rotation, update = rotation_of(quaternion), F.normalize(F.pad(vector, (1, 0), value=1.0), dim=-1)
    assert (rotation @ rotation.mT - torch.eye(3)).abs().max() <= EXACT
    assert (torch.linalg.det(rotation) - 1).abs().max() <= EXACT
    assert_same(rotation_of(turn(quaternion, vector)), rotation @ rotation_of(update), vector)


def test_frames_of_backbones_are_those_of_three_points() -> None:
    positions = draw(2, 4, 5, 3)
    frames = frames_of_backbone(positions)
    expected = [[reference.frame_of(*atoms[:3]) for atoms in chain] for chain in positions]
    assert_same(frames.rotation, torch.stack([torch.stack([each[0] for each in row]) for row in expected]), positions)
    assert torch.equal(frames.shift, positions[:, :, 1])


@pytest.mark.parametrize("padded", [False, True])
def test_invariant_point_attention(padded: bool) -> None:
    config = tiny.folding()
    module, mask = jittered(InvariantPointAttention(config)), REAL if padded else None
    hidden, pair, frames = draw(2, 4, 12), draw(2, 4, 4, 8), some_frames(2, 4)
    actual = module(hidden, pair, frames, mask)
    features = []
    for b in range(2):
        query, key, value = (linear_of(layer, hidden[b]) for layer in (module.q_proj, module.k_proj, module.v_proj))
        points = [linear_of(layer, hidden[b]).view(4, 3, 2, -1) for layer in (module.q_points, module.kv_points)]
        bias, real = linear_of(module.pair_bias, pair[b]), (REAL if padded else torch.ones_like(REAL))[b]
        heads = [
            reference.invariant_point_attention(
                *(each.view(4, 2, -1)[:, h] for each in (query, key, value)),
                *(points[0][:, :, h].mT, points[1][:, :, h, :2].mT, points[1][:, :, h, 2:].mT),
                *(bias[..., h], pair[b], frames.rotation[b], frames.shift[b]),
                *(math.log(1 + math.exp(module.point_weights[h])), real),
            )
            for h in range(2)
        ]
        parts = zip(*heads, strict=True)  # values, points, norms, pairs of each head
        values, spaces, norms, pairs = (torch.stack(each, dim=1) for each in parts)
        features.append(torch.cat([each.flatten(1) for each in (values, *spaces.unbind(-1), norms, pairs)], dim=-1))
    assert_same(actual, linear_of(module.o_proj, torch.stack(features)), hidden, pair, frames.shift, tolerance=1e-7)


def test_attention_is_the_same_in_any_pose() -> None:
    module = jittered(InvariantPointAttention(tiny.folding()))
    hidden, pair, frames = draw(2, 4, 12), draw(2, 4, 4, 8), some_frames(2, 4)
    assert (module(hidden, pair, moved(frames), REAL) - module(hidden, pair, frames, REAL)).abs().max() <= 1e-9


def test_atoms_are_those_of_openfold_and_turn_with_the_backbone() -> None:
    angles, backbone = F.normalize(draw(2, 4, 7, 2), dim=-1), some_frames(2, 4)
    groups = frames_of_torsions(backbone, angles, RESIDUES)
    default = torch.tensor(residue_constants.restype_rigid_group_default_frame)
    rigid = Rigid(Rotation(rot_mats=backbone.rotation), backbone.shift)
    theirs = torsion_angles_to_frames(rigid, angles, RESIDUES, default)  # in single precision
    assert (groups.shift - theirs.get_trans()).abs().max() <= 1e-5
    atoms = place_atoms(groups, RESIDUES)
    assert torch.equal((atoms != 0).any(-1).sum(-1), torch.tensor([[8, 12, 9, 4], [5, 14, 11, 0]]))
    found = torch.stack((frames_of_backbone(atoms).rotation, backbone.rotation))[:, REAL & (RESIDUES < 20)]
    assert (found[0] - found[1]).abs().max() <= 1e-3  # constants of amino acids have three digits
    world = moved(backbone)
    assert (
        place_atoms(frames_of_torsions(world, angles, RESIDUES), RESIDUES) - turned(atoms, backbone, world)
    ).abs().max() <= 1e-9


def turned(atoms: Tensor, before: Frames, after: Frames) -> Tensor:
    """Atoms moved from one pose to the other, those that an amino acid has not left at zero."""
    return after.over(1).apply(before.over(1).invert(atoms)) * (atoms != 0).any(-1, keepdim=True)


def test_a_structure_module_ignores_padding() -> None:
    module = jittered(StructureModule(tiny.folding())).eval()
    hidden, pair = draw(2, 4, 32)[:1], draw(2, 4, 4, 16)[:1]
    mask = torch.tensor([[1, 1, 1, 0]]).bool()
    whole, short = (
        module(hidden, pair, RESIDUES[:1], mask),
        module(hidden[:, :3], pair[:, :3, :3], RESIDUES[:1, :3], None),
    )
    assert torch.equal(whole.atoms[:, :3], short.atoms)
    for one, other in zip(whole[:-1], short[:-1], strict=True):
        assert (one[:, :, :3] - other).abs().max() <= 1e-9


def test_frame_aligned_point_error() -> None:
    frames, true, points, true_points = some_frames(2, 4), some_frames(2, 4), draw(2, 5, 3), draw(2, 5, 3)
    points = 6 * points
    due = torch.rand(2, 4, 5) < 0.7
    actual = frame_aligned_point_error(frames, points, true, true_points, due)
    expected = torch.stack([
        reference.frame_aligned_point_error(
            *zip(*frames_of(frames, b), strict=True), points[b], *zip(*frames_of(true, b), strict=True), true_points[b], due[b]
        )
        for b in range(2)
    ])  # fmt: skip
    assert_same(actual, expected, points, true_points)
    again = frame_aligned_point_error(moved(Frames(frames.rotation, frames.shift)), points, true, true_points, due)
    assert (again - actual).abs().max() > 1e-3


def frames_of(frames: Frames, row: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(frames.rotation[row], frames.shift[row], strict=True))


def test_the_error_is_the_same_in_any_pose_and_mirrors_are_seen() -> None:
    points, due = 5 * draw(1, 4, 4, 3), torch.ones(1, 4, 16).bool()
    frames = frames_of_backbone(points)
    world = moved(frames)
    other = world.over(1).apply(frames.over(1).invert(points))
    error = frame_aligned_point_error(world, other.flatten(1, 2), frames, points.flatten(1, 2), due)
    assert abs(error - 1e-3) <= 1e-9  # the root of epsilon in units of 10 Å
    mirrored = points * torch.tensor([1, 1, -1])
    assert (
        frame_aligned_point_error(
            frames_of_backbone(mirrored), mirrored.flatten(1, 2), frames, points.flatten(1, 2), due
        )
        > 0.1
    )


def test_local_distance_test_and_confidence() -> None:
    points, true, known = 4 * draw(2, 6, 3), 4 * draw(2, 6, 3), torch.rand(2, 6) < 0.8
    expected = [reference.local_distance_test(*each) for each in zip(points, true, known, strict=True)]
    assert torch.allclose(local_distance_test(points, true, known), torch.tensor(expected, dtype=torch.float64))
    assert expected_lddt(F.one_hot(torch.tensor([0, 49]), 50) * 1e4).tolist() == pytest.approx([0.01, 0.99])
    sure = F.one_hot(torch.zeros(1, 4, 4).long(), 64) * 1e4
    assert expected_tm(sure.double(), None).item() == pytest.approx(1 / (1 + (0.25 / (1.24 * 4 ** (1 / 3) - 1.8)) ** 2))


def slow_loss(
    structure: Structure, output: FoldingOutput, labels: Tensor, known: Tensor, row: int, smoothing: float
) -> Tensor:
    """The loss of one chain, pair by pair: half of both FAPE, and the cross entropies of distances, lDDT and errors."""
    whole = [i for i in range(len(labels)) if known[i, :3].all()]
    frames = [
        reference.frame_of(*labels[i, :3]) if i in whole else (torch.eye(3), torch.zeros(3)) for i in range(len(labels))
    ]
    alphas = []
    due = torch.tensor([[i in whole and bool(known[j, 1]) for j in range(len(labels))] for i in range(len(labels))])
    for layer, positions in zip(structure.frames[:, row], structure.positions[:, row], strict=True):
        own = (rotation_of(layer[:, :4]), layer[:, 4:])
        alphas.append(
            reference.frame_aligned_point_error(*own, positions[:, 1], *zip(*frames, strict=True), labels[:, 1], due)
        )
    atoms = due.new_tensor([[i in whole and bool(each) for each in known.flatten()] for i in range(len(labels))])
    points = positions[:, : known.shape[1]].flatten(0, 1), labels.flatten(0, 1)
    final = reference.frame_aligned_point_error(*own, points[0], *zip(*frames, strict=True), points[1], atoms)
    tests = reference.local_distance_test(positions[:, 1], labels[:, 1], known[:, 1])

    def entropy(scores: Tensor, bins: int) -> Tensor:
        shares = scores.new_full(scores.shape, smoothing / len(scores))
        shares[int(bins)] += 1 - smoothing
        return -(shares * (scores - scores.logsumexp(0))).sum()

    def beta(nitrogen: Tensor, alpha: Tensor, carbon: Tensor) -> Tensor:
        first, second = alpha - nitrogen, carbon - alpha
        return alpha - 0.58273431 * torch.linalg.cross(first, second) + 0.56802827 * first - 0.54067466 * second

    distances, aligned = [], []
    for i, j in ((i, j) for i in whole for j in whole):
        far = (beta(*labels[i, :3]) - beta(*labels[j, :3])).norm()
        count = output.distogram_logits.shape[-1]
        distances.append(
            entropy(output.distogram_logits[row, i, j], sum(far > 2 + 20 * k / (count - 2) for k in range(count - 1)))
        )
        seen = reference.seen_from(own[0][i], own[1][i], positions[j, 1])
        errors = (seen - reference.seen_from(*frames[i], labels[j, 1])).norm()
        aligned.append(entropy(output.ptm_logits[row, i, j], sum(errors > 31 * k / 62 for k in range(63))))
    lddt = [entropy(scores, min(int(tests[i] * 50), 49)) for i in whole for scores in output.lddt_logits[row, i]]
    mean = [sum(each) / len(each) for each in (distances, lddt, aligned)]
    return 0.5 * final + 0.5 * sum(alphas) / len(alphas) + 0.3 * mean[0] + 0.01 * mean[1] + 0.01 * mean[2]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_that_of_the_supplement(smoothing: float) -> None:
    quaternions, shifts = F.normalize(draw(2, 2, 4, 4), dim=-1), 4 * draw(2, 2, 4, 3)
    frames, positions = torch.cat((quaternions, shifts), dim=-1), 5 * draw(2, 2, 4, 14, 3)
    positions.data[-1, 0, 0, 1] = 0  # at the origin, where a residue's atoms may be, too
    atoms = torch.ones(2, 4, 14, dtype=torch.bool)
    atoms[1, 0, 3] = False
    structure = Structure(frames, positions, positions, positions, atoms)
    output = FoldingOutput(
        distogram_logits=draw(2, 4, 4, 6), lddt_logits=draw(2, 4, 37, 50), ptm_logits=draw(2, 4, 4, 64)
    )
    labels = 5 * draw(2, 4, 4, 3).detach()
    labels[0, 1, 3], labels[1, 2, 0], labels[1, 3, 1] = -100, -100, -100
    known = (labels != -100).any(-1) & REAL[..., None] & atoms[:, :, :4]
    losses = torch.stack([slow_loss(structure, output, labels[b], known[b], b, smoothing) for b in range(2)])
    sizes = known.flatten(1).sum(-1)
    expected = (losses * sizes).sum() / sizes.sum()
    assert_same(
        folding_loss(structure, output, labels, REAL, None, smoothing), expected, positions, frames, tolerance=1e-9
    )


def test_losses_of_parts_add_up_to_that_of_the_batch() -> None:
    model, inputs = tiny.jitter(QkvFoldingModel(tiny.folding())).double().eval(), tiny.structures()
    count = (inputs["labels"] != -100).sum()
    whole = model(**inputs, num_items_in_batch=count).loss
    parts = [
        model(**{name: each[[b]] for name, each in inputs.items()}, num_items_in_batch=count).loss for b in range(2)
    ]
    assert abs(whole - sum(parts)) <= 1e-9
    assert abs(whole - model(**inputs).loss) <= 1e-9


def test_recycling_reads_the_structure_of_the_pass_before() -> None:
    model, ids = (
        tiny.jitter(QkvFoldingModel(tiny.folding(num_recycles=2))).double().eval(),
        tiny.structures()["input_ids"],
    )
    first, second = (model(ids, num_recycles=count) for count in (0, 1))
    assert (first.positions - second.positions).abs().max() > 1e-3
    model.embed_pairs.distances.weight.data[1:] = model.embed_pairs.distances.weight[0]
    assert (model(ids, num_recycles=1).positions - second.positions).abs().max() > 1e-6


def test_training_brings_a_chain_into_its_form() -> None:
    torch.manual_seed(0)
    ids = torch.randint(20, (1, 5))
    model = QkvFoldingModel(tiny.folding(structure_dropout=0.0, num_recycles=0))
    angles = F.normalize(torch.randn(1, 5, 7, 2), dim=-1)
    backbone = Frames(rotation_of(F.normalize(torch.randn(1, 5, 4), dim=-1)), 3 * torch.randn(1, 5, 3))
    labels = place_atoms(frames_of_torsions(backbone, angles, ids), ids)
    labels = labels.where((labels != 0).any(-1, keepdim=True), -100.0)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(15):
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]


def test_refusals() -> None:
    model, inputs = QkvFoldingModel(tiny.folding()), tiny.structures()
    ids = inputs["input_ids"]
    for refused, mentions in (
        (lambda: model(ids, labels=torch.zeros(2, 9, 2, 3)), ("labels", "(2, 9, 2, 3)", "-100")),
        (lambda: model(ids + 99), ("input_ids", "vocabulary")),
        (lambda: tiny.folding(final_norm=True), ("num_recycles=1", "final_norm=False")),
        (lambda: tiny.folding("esmfold", language_model_ids=[0]), ("language_model_ids", "vocab_size=61")),
        (lambda: tiny.folding("esmfold", language_model_config={"eos_token_id": [2, 3]}), ("eos_token_id",)),
        (lambda: tiny.folding("esmfold", language_model_ids=None), ("language_model_config", "language_model_ids")),
    ):
        with raises_sentence(*mentions):
            refused()


def test_tokens_that_a_language_model_cannot_read_are_refused_before_they_are_learned() -> None:
    model = QkvFoldingModel(tiny.folding("esmfold"))
    size = model.config.vocab_size
    assert model.resize_token_embeddings() is model.resize_token_embeddings(size) is model.get_input_embeddings()
    for changed in ({"new_num_tokens": size + 9}, {"pad_to_multiple_of": 64}):
        with pytest.raises(ValueError, match="language_model_ids"):
            model.resize_token_embeddings(**changed)
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == size
