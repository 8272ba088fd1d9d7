"""The parts of a card that hold figures: each from the record, and a sentence for each that is missing."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from qkv.scripts.publishing.card.card import make_card
from qkv.scripts.publishing.card.record import citation, published

CARDS = Path(__file__).resolve().parents[4] / "model_cards"
# Of one run alone.
RECORD = json.loads((CARDS / "digits" / "record.json").read_text())
RECORD.pop("comparison", None)
DATA = {**RECORD["data"], "sizes": {"test": 360, "photographs": 20, "group: left-handed": 30}}
ALWAYS = ("hardware other than cpu (x86_64)", "precisions other than fp32")


def changed(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RECORD), **fields}


def section(title: str, record: dict[str, Any]) -> str:
    """A section of the record's card."""
    return str(make_card(record)).partition(f"## {title}\n")[2].partition("\n## ")[0]


def gaps(record: dict[str, Any]) -> str:
    return section("Not measured", record)


def facts(record: dict[str, Any]) -> str:
    return section("Training", record)


def metrics(**values: float) -> dict[str, dict[str, float]]:
    return {"test": {"accuracy": 0.5, **values}}


@pytest.mark.parametrize(
    ("word", "record"),
    [
        ("another seed", changed(comparison={"seeds": [0, 1, 2], "models": {}})),
        ("data from elsewhere", changed(metrics={**metrics(), "photographs": {"accuracy": 0.5}}, data=DATA)),
        ("calibration", changed(metrics=metrics(ece=0.1))),
        ("fairness", changed(metrics={**metrics(), "group: left-handed": {"accuracy": 0.5}}, data=DATA)),
        ("energy", changed(energy={"training_j": 5.0, "counters": ["package-0"]})),
        ("speed and memory", changed(metrics=metrics(examples_per_second=9.0))),
        ("a GPU", changed(device={**RECORD["device"], "type": "cuda"})),
    ],
)
def test_what_is_not_measured_is_what_the_record_lacks(word: str, record: dict[str, Any]) -> None:
    assert any(word in line for line in gaps(RECORD).splitlines())
    assert not any(word in line for line in gaps(record).splitlines())


def test_other_models_are_missed_where_there_are_none() -> None:
    assert "other models" not in gaps(RECORD) and "other models" in gaps(changed(baselines={}))


def test_a_record_says_nothing_of_what_it_was_not_made_with() -> None:
    assert all(f"- {word}" in gaps(RECORD) for word in ALWAYS)


def test_models_are_compared_over_all_seeds() -> None:
    def model(name: str, *accuracies: float) -> dict[str, Any]:
        found = {"accuracy": list(accuracies)}
        return {"architecture": name, "parameters": 1000, "training_cpu_s": [60.2, 61.8], "metrics": {"test": found}}

    models = {"qkv": model("Ours", 0.98, 0.99), "stock": model("Theirs", 0.97, 0.97), "other": model("Ours", 0.1, 0.2)}
    record = changed(metrics=metrics(), comparison={"seeds": [4, 7], "models": models})
    text = str(make_card(record))
    assert "Seeds 4, 7: the mean, and the least" in text and "of one run, with seed 0." in text
    assert "| test split | parameters | CPU seconds of training | accuracy |" in text
    assert "| `Ours` | 1,000 | 61 (60 to 62) | 98.50 % (98.00 to 99.00) |" in text
    assert "| `Theirs` | 1,000 | 61 (60 to 62) | 97.00 % (97.00 to 97.00) |" in text
    assert "| `Ours`, other | 1,000 | 61 (60 to 62) | 15.00 % (10.00 to 20.00) |" in text
    assert "Beside the stock" not in str(make_card(RECORD))


def test_weights_that_were_chosen_are_told_as_such() -> None:
    assert "On the weights of the last step, never the best of several; these are" in section("Results", RECORD)
    recipe = {**RECORD["recipe"], "watch": "validation loss"}
    watched = changed(recipe=recipe, steps={"taken": 1200, "kept": 960})
    text = section("Results", watched)
    assert "On the weights of step 960 of 1,200, the best by validation loss; these are the figures of one" in text
    assert "| optimizer steps | 1,200 |" in facts(watched)


def test_splits_come_with_their_size_and_rivals() -> None:
    found = {"test": {"loss": 0.034, "accuracy": 0.9861}}
    text = section("Results", changed(metrics=found, baselines={"SVM": {"test": {"accuracy": 0.9833}}}))
    assert "| test split, n = 360 | loss | accuracy |" in text and "| qkv-digits | 0.0340 | 98.61 % |" in text
    assert "| SVM |  | 98.33 % |" in text


def test_energy_is_told_only_where_it_was_counted() -> None:
    assert "| energy | not measured |" in facts(RECORD)
    assert "| energy | not measured |" in facts(changed(energy=None))
    counted = changed(energy={"training_j": 1234.5, "counters": ["package-0", "package-1"]})
    assert "| energy | 1,234 J in training, as package-0, package-1 count it, whatever" in facts(counted)


def test_the_machine_is_told_as_far_as_it_is_known() -> None:
    device = {**RECORD["device"], "processor": "Some CPU", "cores": 4, "memory_gib": 8}
    unknown = {name: value for name, value in device.items() if name not in ("processor", "cores", "memory_gib")}
    assert "| hardware | 1 x cpu (x86_64), 1 thread(s) each |" in facts(changed(device=unknown))
    assert "1 thread(s) each; Some CPU, 4 cores, 8 GiB of memory |" in facts(changed(device=device))


def test_places_on_a_machine_are_left_out_of_the_command() -> None:
    assert published("qkv train digits out=/home/alice/runs/x seed=1") == "qkv train digits seed=1"
    assert published("qkv train '/home/alice/my recipe.yaml'") == "qkv train 'my recipe.yaml'"


def test_the_paper_of_the_preset_is_cited() -> None:
    assert citation(RECORD["recipe"]) == ""
    recipe = {**RECORD["recipe"], "preset": "vit_base_16"}
    assert "Dosovitskiy et al. 2021, table 1, https://arxiv.org/abs/2010.11929" in citation(recipe)
    text = str(make_card(changed(recipe=recipe)))
    assert "## Citation" in text and "differs from the preset `vit_base_16`" in text
    with pytest.raises(ValueError, match="the record's recipe.preset='vit' is not one of bart_base"):
        citation({**recipe, "preset": "vit"})
