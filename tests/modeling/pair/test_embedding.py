"""Pairs start from the vectors that the paper adds."""

import torch

import reference
from comparison import assert_same, draw, jittered
from comparison import pair as config_of
from qkv.modeling.pair.embedding import PairEmbedding

MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
BINS = torch.arange(72).view(2, 6, 6) % 4


def test_pairs_start_from_residues_positions_and_distances():
    config = config_of(num_distance_bins=4)
    module, hidden, positions = jittered(PairEmbedding(config)), draw(2, 6, 8), torch.tensor([[0, 1, 2, 3, 7, 20]])
    numbers = torch.tensor(reference.relative_positions(positions[0], 2)) * (MASK[:, :, None] & MASK[:, None])
    expected = []
    for row in range(2):
        left, right = (reference.linear(hidden[row], each.weight, each.bias) for each in (module.left, module.right))
        places = [
            [
                left[i]
                + right[j]
                + module.relative_positions.weight[numbers[row, i, j]]
                + module.distances.weight[bin_]
                for j, bin_ in enumerate(line)
            ]
            for i, line in enumerate(BINS[row].tolist())
        ]
        expected.append(torch.stack([torch.stack(line) for line in places]))
    actual = module(hidden, positions, MASK.bool(), BINS)
    assert_same(actual, torch.stack(expected), hidden, *module.parameters())
