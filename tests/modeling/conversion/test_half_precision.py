"""Converted models stay finite in half precision where stock ones do, and overflow where nothing of theirs prevents it."""

import copy
import re
from pathlib import Path

import pytest
import torch
from test_parity import double
from transformers import PreTrainedModel

from families.base import Row
from families.half_precision import FIRST, run
from qkv.modeling.conversion.convert import from_transformers, to_transformers

pytestmark = pytest.mark.upstream

EACH = pytest.mark.parametrize("row", FIRST.values(), ids=FIRST)
# The last matrix of a feed-forward network, whose output is added to hidden states; that of encoders alone.
LAST = re.compile(r"(fc2|wo|mlp\.c_proj|down_proj|layer\.\d+\.output\.dense|lin2|dense_4h_to_h)\.weight$")
OF_ENCODER = re.compile(f"encoder.*{LAST.pattern}")


def scaled(row: Row, factor: float, names: re.Pattern[str]) -> PreTrainedModel:
    """The official model with some matrices larger."""
    official = row.build()
    with torch.no_grad():
        for name, weight in official.named_parameters():
            if weight.ndim > 1 and names.search(name):
                weight.mul_(factor).clamp_(-6e4, 6e4)
    return official


@pytest.mark.costly(12)
@pytest.mark.parametrize("factor", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@EACH
def test_half_precision_is_as_near_to_the_exact_numbers(row: Row, dtype: torch.dtype, factor: float) -> None:
    official = scaled(row, factor, re.compile(r"^(?!.*embed_positions).*weight$"))
    with double():
        precise = run(row, copy.deepcopy(official).double(), ours=False)
    theirs, mine = run(row, official.to(dtype), ours=False), run(row, from_transformers(official), ours=True)
    for name, one in theirs.items():
        other, truth = mine[name], precise[name]
        assert not (one.isfinite() & ~other.isfinite()).any()
        # Above, one of the scores takes all, and which is a matter of rounding.
        if factor < 16 and one.isfinite().all():
            assert (other - truth).norm() <= 2 * (one - truth).norm() + 4 * torch.finfo(dtype).eps * truth.norm()


@EACH
@pytest.mark.parametrize("names", [LAST, OF_ENCODER], ids=["all", "encoder"])
@pytest.mark.costly(12)
def test_hidden_states_overflow_where_theirs_do(row: Row, names: re.Pattern[str]) -> None:
    official = scaled(row, 1e6, names).half()
    theirs, mine = run(row, official, ours=False), run(row, from_transformers(official), ours=True)
    for name, one in theirs.items():
        assert torch.equal(one.isfinite(), mine[name].isfinite()), name
        finite = one[one.isfinite()]
        assert (mine[name][one.isfinite()] - finite).norm() <= 0.05 * finite.norm(), name


GUARDED = {"t5": LAST, "mt5": LAST, "longt5": LAST} | dict.fromkeys(
    ("mbart", "pegasus", "m2m_100", "whisper", "speech_to_text"), OF_ENCODER
)


@pytest.mark.parametrize("kind", GUARDED)
def test_a_guard_is_what_keeps_it_finite(kind: str) -> None:
    row = FIRST[kind]
    ours = from_transformers(scaled(row, 1e6, GUARDED[kind]).half())
    assert all(value.isfinite().all() for value in run(row, ours, ours=True).values())
    for module in ours.modules():
        if hasattr(module, "clamp"):
            module.clamp = None
    assert not all(value.isfinite().all() for value in run(row, ours, ours=True).values())


@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_half_precision_on_disk_is_loaded_as_theirs(kind: str, tmp_path: Path) -> None:
    """In single precision where theirs is, at the end of feed-forward networks, and overflows nowhere."""
    row = FIRST[kind]
    scaled(row, 1e3, LAST).half().save_pretrained(tmp_path / "official")
    official = type(row.build()).from_pretrained(tmp_path / "official", dtype="auto")
    ours = from_transformers(tmp_path / "official")
    ours.save_pretrained(tmp_path / "ours")
    for model in (ours, type(ours).from_pretrained(tmp_path / "ours", dtype="auto")):
        dtypes = {name: weight.dtype for name, weight in model.named_parameters()}
        assert {name for name in dtypes if dtypes[name] == torch.float32} == {n for n in dtypes if "down_proj" in n}
        theirs, mine = run(row, official, ours=False), run(row, model, ours=True)
        for name, one in theirs.items():
            assert one.isfinite().all() and (mine[name] - one).norm() <= 0.01 * one.norm()
    back = {name: weight.dtype for name, weight in to_transformers(ours).named_parameters()}
    assert back == {name: weight.dtype for name, weight in official.named_parameters()}
