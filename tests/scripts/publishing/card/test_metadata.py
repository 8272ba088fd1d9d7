"""What the Hub reads: valid for the library that writes and reads it."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import metadata_load
from huggingface_hub.repocard_data import model_index_to_eval_results

from qkv.scripts.publishing.card.card import make_card, write_card

CARDS = Path(__file__).resolve().parents[4] / "model_cards"
RECORD = json.loads((CARDS / "digits" / "record.json").read_text())


def with_task(**fields: Any) -> dict[str, Any]:
    record = copy.deepcopy(RECORD)
    record["task"] |= fields
    return record


def test_the_metadata_is_what_the_hub_reads(tmp_path: Path) -> None:
    shutil.copytree(CARDS / "digits", tmp_path, dirs_exist_ok=True)
    write_card(tmp_path / "record.json", tmp_path / "card.md")
    found = metadata_load(tmp_path / "card.md")
    assert found["license"] == "apache-2.0" and found["library_name"] == "transformers"
    assert found["pipeline_tag"] == "image-classification" and found["metrics"] == ["accuracy"]
    assert {"qkv", "qkv_image_encoder", "custom_code"} == set(found["tags"])
    assert {"datasets", "language", "base_model"}.isdisjoint(found)  # scikit-learn's digits are no dataset of the Hub
    name, (result,) = model_index_to_eval_results(found["model-index"])
    assert (name, result.task_type, result.dataset_split) == ("qkv-digits", "image-classification", "test")
    assert (result.metric_type, result.metric_value) == ("accuracy", round(RECORD["metrics"]["test"]["accuracy"], 4))


def test_what_the_record_names_is_there() -> None:
    record = with_task(dataset="acme/digits", language="de")
    record["base_model"] = {"id": "acme/base", "relation": "finetune"}
    card = make_card(record)
    found = card.data.to_dict()
    assert (found["base_model"], found["base_model_relation"]) == ("acme/base", "finetune")
    assert found["datasets"] == ["acme/digits"] and found["language"] == "de" and "license" not in found
    assert found["model-index"][0]["results"][0]["dataset"]["type"] == "acme/digits"
    assert "made from [acme/base](https://huggingface.co/acme/base) (finetune) with qkv" in str(card)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ({"id": "a/b", "relation": "copy"}, "base_model.relation='copy' is not one of finetune, quantized, adapter, merge"),
        ({"id": "a/b"}, "base_model.relation=None is not one of"),
        ({"relation": "finetune"}, "the record's base_model lacks 'id'"),
    ],
)  # fmt: skip
def test_a_relation_that_the_hub_does_not_know_is_refused(base: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_card({**RECORD, "base_model": base})
