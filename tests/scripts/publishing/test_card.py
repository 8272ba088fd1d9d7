"""The card: valid for the Hub, and nothing in it that is not in the record."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from qkv.scripts.publishing.card import make_card, write_card

CARDS = Path(__file__).resolve().parents[3] / "model_cards"
RECORD = json.loads((CARDS / "digits.json").read_text())


@pytest.mark.parametrize("path", sorted(CARDS.glob("*.json")), ids=lambda path: path.stem)
def test_published_cards_follow_from_their_records(path: Path, tmp_path: Path) -> None:
    write_card(path, tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text() == path.with_suffix(".md").read_text(), f"run `qkv card {path.name}`"


def test_every_published_card_has_a_record() -> None:
    assert {path.stem for path in CARDS.glob("*.md")} - {"TEMPLATE", "PARITY"} == {
        path.stem for path in CARDS.glob("*.json")
    }


def test_the_metadata_is_what_the_hub_reads(tmp_path: Path) -> None:
    write_card(CARDS / "digits.json", tmp_path / "card.md")
    data = ModelCard.load(tmp_path / "card.md").data
    assert (data.license, data.library_name, data.pipeline_tag) == (
        "apache-2.0",
        "transformers",
        "image-classification",
    )
    assert data.model_name == "qkv-digits" and data.metrics == ["accuracy"] and "qkv" in data.tags
    (result,) = data.eval_results
    assert (result.task_type, result.dataset_split, result.metric_type) == ("image-classification", "test", "accuracy")
    assert result.metric_value == round(RECORD["metrics"]["test"]["accuracy"], 4)
    head = (tmp_path / "card.md").read_text().split("---")[1]
    assert yaml.safe_load(head)["model-index"][0]["name"] == "qkv-digits"


def test_numbers_come_from_the_record() -> None:
    changed = copy.deepcopy(RECORD)
    changed["metrics"]["test"]["accuracy"], changed["parameters"] = 0.12345, 987654
    changed["baselines"] = {"a rival": {"test": {"accuracy": 0.54321}}}
    text = str(make_card(changed))
    assert "12.35 %" in text and "54.32 %" in text and "987,654" in text and "value: 0.1235" in text


def test_the_card_tells_how_to_load_and_how_it_was_made() -> None:
    text = str(make_card(RECORD))
    for expected in (
        'pipeline("image-classification"', "AutoModelForImageClassification.from_pretrained", "trust_remote_code=True",
        RECORD["command"], RECORD["data"]["sha256"], RECORD["versions"]["torch"], "| batch_size |", "| augment.degrees |",
    ):  # fmt: skip
        assert expected in text
    assert "{{" not in text and "None" not in text


@pytest.mark.parametrize("text", ["{}", "not json"])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match="is not the record of a finished run"):
        write_card(tmp_path / "x.json", tmp_path / "card.md")
    assert not (tmp_path / "card.md").exists()
