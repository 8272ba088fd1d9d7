"""A step of training on 65,536 tokens fits in two gigabytes where attention is sparse or linear."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from length_jobs import FAMILIES, SPARSE
from watching import number

from processes import launch


@pytest.mark.parametrize("sparse", SPARSE)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_on_sixty_five_thousand_tokens_fits_in_two_gigabytes(
    tmp_path: Path, record: Callable[..., None], family: str, sparse: str
) -> None:
    tokens, answer = number("LENGTH", 65_536), tmp_path / "found.json"
    words = json.dumps({"family": family, "sparse": sparse, "tokens": tokens})
    (status,) = launch("length_jobs", [words, answer], tmp_path / "log", processes=1)
    assert status == 0, (tmp_path / "log-0").read_text()[-5000:]
    found = json.loads(answer.read_text())
    assert found["finite"] and math.isclose(found["loss"], math.log(256), rel_tol=0.1), found
    assert found["peak GB"] < 2, found
    peak = "at most {peak GB:.2f} GB, {before GB:.2f} GB of them before it".format(**found)
    what = f"a step of training, {family} of two layers of width 64, {sparse}"
    record(what, f"one text of {tokens:,} tokens", peak, **found)
