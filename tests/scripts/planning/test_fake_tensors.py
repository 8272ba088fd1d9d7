"""Stand-ins for operations that depend on data have the shapes of these, and leave with the block."""

import pytest
import torch

from qkv.configuration import presets
from qkv.modeling.heads import loss, matching
from qkv.scripts.planning.fake_tensors import ctc_loss, ctc_loss_backward, data_independent, match_in_order

aten = torch.ops.aten


def test_as_many_object_queries_are_matched() -> None:
    objects = [
        {"class_labels": torch.zeros(count, dtype=torch.long), "boxes": torch.rand(count, 4)} for count in (3, 1)
    ]
    given = (torch.randn(2, 5, 7), torch.rand(2, 5, 4), objects, presets.detr_r50())
    shapes = [
        [[side.shape for side in pair] for pair in found]
        for found in (matching.matched(*given), match_in_order(*given))
    ]
    assert shapes[0] == shapes[1]


def test_labels_are_aligned_in_tensors_of_the_same_shapes() -> None:
    scores, labels, counts = torch.randn(9, 2, 5).log_softmax(-1), torch.ones(6, dtype=torch.long), torch.tensor([3, 3])
    given = (scores, labels, torch.tensor([9, 9]), counts)
    real, stand_in = aten._ctc_loss.Tensor(*given), ctc_loss(*given)
    assert [side.shape for side in real] == [side.shape for side in stand_in]
    assert aten._ctc_loss_backward.Tensor(real[0], *given, *real, 0).shape == ctc_loss_backward(real[0], *given).shape


def test_fused_dropout_drops_as_many_units() -> None:
    torch.manual_seed(0)
    with data_independent():
        dropped = torch.nn.Dropout(0.25).train()(torch.ones(10_000))
    assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)] and 2300 < (dropped == 0).sum() < 2700


def test_stand_ins_leave_with_the_block() -> None:
    real = (matching.matched, loss.gather_pairs, torch.backends.mkldnn.enabled)
    values, due = torch.arange(4), torch.tensor([True, False, True, False])
    with data_independent():
        assert matching.matched is match_in_order and len(values[due]) == 4
    assert real == (matching.matched, loss.gather_pairs, torch.backends.mkldnn.enabled) and len(values[due]) == 2
