"""What a config describes is counted while it is made, and no longer than it may be."""

import pytest
import torch

from qkv.modeling.conversion.amount import at_most


def test_what_is_too_much_is_not_made_to_its_end() -> None:
    made = []
    with pytest.raises(ValueError, match="too many"), at_most(5, "too many"):
        made.extend(torch.nn.Linear(2, 2) for _ in range(10**9))
    assert len(made) == 2
    with at_most(4, "too many"):
        assert len([torch.nn.Linear(2, 2) for _ in range(2)]) == 2
    assert len([torch.nn.Linear(2, 2) for _ in range(9)]) == 9  # nothing is counted any more
