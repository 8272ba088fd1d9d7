"""Mixtures of experts on several processes by the plans that transformers applies: the numbers of one process."""

import json
from pathlib import Path

import pytest

from expert_worker import FORMS, PLANS
from processes import run_together

pytestmark = pytest.mark.upstream


@pytest.mark.costly(2)
@pytest.mark.parametrize("form", FORMS)
def test_plans_have_the_numbers_of_one_process(form: str, tmp_path: Path) -> None:
    run_together("expert_worker", [tmp_path, form], tmp_path)
    for rank in range(2):
        found = json.loads((tmp_path / f"{form}-{rank}.json").read_text())
        assert found.keys() == PLANS.keys()
        for each in found.values():
            assert each["logits"] < 1e-6 and each["gradients"] < 1e-6 and each["tokens"] == each["split"] == 1
