"""Parity over drawn configs: whatever an architecture's config legally says, ours gives the same numbers both ways."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from test_parity import DOUBLE, SINGLE, assert_identical, distance, double

from families import FAMILIES
from families.base import Family, Row
from families.space import configs
from qkv.modeling.conversion.convert import from_transformers, to_transformers

each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
EVERYTHING = tuple(HealthCheck)


def check(family: Family, head: str, fields: dict[str, Any]) -> tuple[float, float]:
    """The largest differences in single and in double precision, after seeing the limits and the way back hold."""
    if head.endswith("QuestionAnswering"):  # its two scores are no labels
        fields = {name: value for name, value in fields.items() if "label" not in name}
    row = Row(family, head, {}, fields)
    official = row.build()
    ours = from_transformers(official)
    assert_identical(to_transformers(ours, family.model_type), official)
    single = max(distance(row, official, ours, side) for side in row.sides)
    with double():
        official = row.build()
        precise = max(distance(row, official, from_transformers(official), side) for side in row.sides)
    assert single <= SINGLE and precise <= DOUBLE
    return single, precise


def search(family: Family, examples: int) -> tuple[float, float]:
    """Draw that many configs, each with a head, and check them; the largest differences there were."""
    found, simplest = [], []

    @settings(max_examples=examples, derandomize=True, deadline=None, database=None, suppress_health_check=EVERYTHING)
    @given(fields=configs(family.model_type), head=st.sampled_from(sorted(family.heads)))
    def drawn(fields: dict[str, Any], head: str) -> None:
        if examples == 1 and not simplest:  # which comes first, and is drawn by nobody
            simplest.append(head)
            reject()
        found.append(check(family, head, fields))

    drawn()
    assert len(found) >= examples
    return max(single for single, _ in found), max(precise for _, precise in found)


@each_family
def test_a_config(family: Family) -> None:
    search(family, 1)


@pytest.mark.slow
@each_family
def test_many_configs(family: Family) -> None:
    search(family, 30)
