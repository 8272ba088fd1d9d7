"""Converted models drop out as often as official ones, and at the same rates, but where docs/migration.md says otherwise."""

from collections import Counter
from unittest import mock

import pytest
from test_parity import run
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from families import ROWS
from families.base import Row
from qkv.modeling.conversion.convert import from_transformers

RATES = (int, float, type(None))
OTHERWISE = (
    "detr distilbert falcon modernbert modernbert-decoder persimmon siglip siglip_vision_model stablelm xlm-roberta-xl"
).split()


def varied(row: Row) -> Row:
    """The row with another rate in each field of dropout; layers that chance leaves out would be others on both sides."""
    names = [name for name, value in row.config().to_dict().items() if "drop" in name and type(value) in RATES]
    fields = {name: 0.0 if "layerdrop" in name else 0.1 + number / 100 for number, name in enumerate(names)}
    return Row(row.family, row.head, row.wrong, {**row.fields, **fields}, row.options)


def rates(row: Row, model: PreTrainedModel, *, ours: bool) -> Counter[float]:
    """How often a forward in training drops out at which rate."""
    found: Counter[float] = Counter()

    def dropout(values: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        found[round(p, 6)] += training and p > 0
        return values

    with mock.patch.object(F, "dropout", dropout):
        run(row, model.train(), "none", ours=ours)
    return +found


def are_equal(row: Row) -> bool:
    official = varied(row).build()
    return rates(row, official, ours=False) == rates(row, from_transformers(official), ours=True)


@pytest.mark.costly(16)
@pytest.mark.parametrize("row", [row for row in ROWS if row.family.model_type not in OTHERWISE], ids=str)
def test_rates(row: Row) -> None:
    assert are_equal(row)


@pytest.mark.parametrize("model_type", OTHERWISE)
def test_others_are_named_for_a_reason(model_type: str) -> None:
    assert not are_equal(next(row for row in ROWS if row.family.model_type == model_type))
