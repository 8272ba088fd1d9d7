"""The certificate: every official class passes, and nothing passes by accident."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_parity import mistaken

import qkv
import tiny
from families import ROWS, variant
from families.base import Row
from qkv.scripts.conversion.certificate import ONE_ROUNDING, certify, differences, first_diverging, identical, problems
from qkv.scripts.conversion.probe import in_double_precision

HEADS = [
    ("bert", "ForMultipleChoice"),
    ("deit", "ForMaskedImageModeling"),
    ("bart", "ForSequenceClassification"),
    ("marian", "MTModel"),
]


def certificate(row: Row, folder: Path) -> dict[str, Any]:
    row.build().save_pretrained(folder / "official")
    qkv.from_transformers(folder / "official").save_pretrained(folder / "ours")
    return certify(folder / "official", folder / "ours")


def test_products_of_groups_and_states_of_layers_are_certified(tmp_path: Path) -> None:
    assert certificate(variant("qwen3_next", "ForCausalLM", ""), tmp_path)["passed"]


@pytest.mark.parametrize("row", [variant(*names, "") for names in HEADS], ids=str)
@pytest.mark.costly(2)
def test_an_equal_model_passes(row: Row, tmp_path: Path) -> None:
    found = certificate(row, tmp_path)
    assert found["passed"] and not problems(found)
    # Only Marian's own table of positions is rounded, and that once.
    assert found["limits"]["float64"] == (ONE_ROUNDING if row.class_name == "MarianMTModel" else 1e-10)
    assert all(measured.keys() == {"float64", "float32", "bfloat16"} for measured in found["layers"].values())


@pytest.mark.parametrize(("rounded", "limit"), [("float32", ONE_ROUNDING), ("float16", 1e-10)])
def test_a_contact_head_passes_on_the_way_out(rounded: str, limit: float, tmp_path: Path) -> None:
    """Stock ESM stores its frequencies: in single precision as one rounding, in half precision as both have them."""
    rope = {"rope_theta": 10000.0, "inv_freq_dtype": rounded}
    fields = {"scale_embedding": "token_dropout", "mask_token_id": 5, "embedding_dropout": 0.0}
    model = tiny.precise(qkv.QkvEncoderForContactPrediction, "maps", rope_parameters=rope, **fields).float()
    model.save_pretrained(tmp_path / "ours")
    qkv.to_transformers(model).save_pretrained(tmp_path / "official")
    found = certify(tmp_path / "ours", tmp_path / "official")
    assert found["passed"] and found["limits"]["float64"] == limit and found["target"]["class"] == "EsmModel"


def refuse_mistaken(row: Row, folder: Path) -> None:
    """The same weights under another config, a mistake of each row's own, and where it begins to show."""
    row.build().save_pretrained(folder / "official")
    mistaken(row, qkv.from_transformers(folder / "official")).save_pretrained(folder / "ours")
    found = certify(folder / "official", folder / "ours")
    layer = found["first diverging layer"]
    assert not found["passed"] and layer is not None and layer in problems(found)[0]


@pytest.mark.parametrize("row", [variant(*names, "") for names in HEADS], ids=str)
@pytest.mark.costly(2)
def test_a_mistake_is_named_by_the_layer_where_it_begins(row: Row, tmp_path: Path) -> None:
    refuse_mistaken(row, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_mistake_in_any_official_class_is_named(row: Row, tmp_path: Path) -> None:
    refuse_mistaken(row, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_official_class_passes(row: Row, tmp_path: Path) -> None:
    found = certificate(row, tmp_path)
    assert found["passed"] and ("generation" in found) == row.generates


def test_a_number_that_is_none_is_a_difference() -> None:
    one = {"layers.0": torch.ones(2, 3)}
    for other in (torch.full((2, 3), torch.nan), torch.ones(3, 2)):
        ((layer, measured),) = differences(one, {"layers.0": other})
        found = {"limits": {"float32": 1e-5}, "layers": {layer: {"float32": measured}}}
        assert first_diverging(found) == "layers.0"


def test_bits_are_compared_and_not_numbers() -> None:
    zero = torch.zeros(2)
    assert identical(zero, zero.clone()) and identical(zero / 0, zero / 0)
    assert not identical(zero, -zero) and not identical(zero, zero.half()) and not identical(zero, zero[:1])


def test_it_computes_in_double_what_asks_for_single() -> None:
    with in_double_precision():
        third = torch.tensor(1.0) / 3
        assert third.float().dtype == third.to(torch.float32).dtype == torch.zeros(2).dtype == torch.float64
        assert torch.softmax(third[None], 0, dtype=torch.float32).dtype == torch.float64
    assert torch.zeros(2).dtype == torch.float32 == torch.zeros(2).double().float().dtype
