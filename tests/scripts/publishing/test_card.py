"""The card follows from its record, and says what was not measured."""

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import metadata_load
from huggingface_hub.repocard_data import model_index_to_eval_results
from transformers import GPT2Config, GPT2LMHeadModel

import qkv
from qkv.scripts.conversion.certificate import certify
from qkv.scripts.publishing.card.card import PAGE, make_card, plain_card, record_card
from qkv.scripts.publishing.card.record import published

CARDS = Path(__file__).resolve().parents[3] / "model_cards"
RECORDS = sorted(path.with_name("record.json") for path in CARDS.glob("*/card.md"))
RECORD = json.loads((CARDS / "digits" / "record.json").read_text())
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 20}


def changed(**fields: Any) -> dict[str, Any]:
    """The record of digits with other values, by dotted names in which `__` stands for the dot."""
    record = copy.deepcopy(RECORD)
    for path, value in fields.items():
        *groups, last = path.split("__")
        inner = record
        for group in groups:
            inner = inner[group]
        inner[last] = value
    return record


def saved(**fields: Any) -> dict[str, Any]:
    """The config of a saved masked language model."""
    config = qkv.presets.bert_base(**TINY, **fields)
    return {**config.to_dict(), "architectures": ["QkvEncoderForMaskedLM"]}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_published_cards_follow_from_their_records(path: Path, tmp_path: Path) -> None:
    for beside in path.parent.iterdir():
        (tmp_path / beside.name).touch()
    copied = Path(shutil.copy(path, tmp_path))
    assert record_card(copied) == path.with_name("card.md").read_text(), "run `make cards`"


def test_numbers_come_from_the_record() -> None:
    record = changed(metrics__test__accuracy=0.12345, parameters=987654)
    record["baselines"] = {"a rival": {"test": {"accuracy": 0.54321}}}
    text = str(make_card(record))
    assert "12.35 %" in text and "54.32 %" in text and "987,654" in text and "value: 0.1235" in text


def test_each_form_leads_to_the_other() -> None:
    own = str(make_card(RECORD, other="acme/stock", repo="acme/own", digest="ab" * 32))
    assert "[native form](https://huggingface.co/acme/stock)" in own and "qkv verify acme/own" in own
    assert "ab" * 32 in own and "custom_code" in own and "user/" not in own
    native = str(make_card(RECORD, form="native", other="https://example.org/own"))
    assert "[self-contained form](https://example.org/own)" in native and "`ViTForImageClassification`" in native
    assert "- vit\n" in native and "trust_remote_code" not in native and "custom_code" not in native
    with pytest.raises(ValueError, match="native"):
        make_card(changed(config__position="rope"), form="native")


def test_a_card_without_a_record_shows_the_config() -> None:
    text = str(plain_card(saved(), name="mine", repo="acme/mine"))
    assert "## Results" not in text and "## Training" not in text and "license:" not in text
    assert '"hidden_size": 16' in text and '"hidden_act"' not in text and "auto_map" not in text
    assert 'pipeline("fill-mask", model="acme/mine", trust_remote_code=True)' in text and "\n\n\n" not in text


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({**saved(), "architectures": []}, "architectures"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertModel"),
        ({"model_type": "brt", "architectures": ["BertModel"]}, "brt"),
        ({**saved(), "architectures": ["QkvNothing"]}, "QkvNothing"),
    ],
)
def test_a_config_that_says_too_little_is_refused(config: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        plain_card(config, name="mine", form="native" if word == "brt" else "self-contained")


@pytest.mark.parametrize("path", ["recipe.name", "data.sizes.test", "metrics", "config", "time.training_wall_s"])
def test_a_record_that_lacks_a_field_is_refused_by_its_name(path: str, tmp_path: Path) -> None:
    record = copy.deepcopy(RECORD)
    *groups, last = path.split(".")
    inner = record
    for group in groups:
        inner = inner[group]
    del inner[last]
    with pytest.raises(ValueError, match=rf"the record lacks .*'{last}'"):
        make_card(record)
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match=r"x\.json"):
        record_card(tmp_path / "x.json")


def test_pictures_stand_on_the_card_and_lie_beside_it(tmp_path: Path) -> None:
    record = changed(pictures={"curve.png": "Loss by step"})
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"curve\.png"):
        record_card(tmp_path / "record.json")
    (tmp_path / "curve.png").write_bytes(b"picture")
    card = record_card(tmp_path / "record.json")
    assert "![Loss by step](curve.png)" in card and f"`qkv quickstart {RECORD['recipe']['name']}`" in card


def test_the_metadata_is_read_by_the_hub(tmp_path: Path) -> None:
    found = metadata_load(shutil.copy(CARDS / "digits" / "card.md", tmp_path))
    assert found["license"] == "apache-2.0" and found["library_name"] == "transformers"
    assert found["pipeline_tag"] == "image-classification" and found["metrics"] == ["accuracy"]
    assert {"qkv", "qkv_image_encoder", "custom_code"} == set(found["tags"])
    assert {"datasets", "language", "base_model"}.isdisjoint(found)  # scikit-learn's digits are no dataset of the Hub
    name, (result,) = model_index_to_eval_results(found["model-index"])
    assert (name, result.task_type, result.dataset_split) == ("qkv-digits", "image-classification", "test")
    assert (result.metric_type, result.metric_value) == ("accuracy", round(RECORD["metrics"]["test"]["accuracy"], 4))
    base = {"id": "acme/base", "relation": "finetune"}
    card = make_card(changed(task__dataset="acme/digits", task__language="de", base_model=base))
    assert "made from [acme/base](https://huggingface.co/acme/base) (finetune)" in str(card)
    made = card.data.to_dict()
    assert (made["base_model"], made["base_model_relation"]) == ("acme/base", "finetune")
    assert made["datasets"] == ["acme/digits"] and made["language"] == "de" and "license" not in made


# One run alone.
ALONE = {name: value for name, value in RECORD.items() if name != "comparison"}


def section(title: str, record: dict[str, Any]) -> str:
    """A section of the record's card."""
    return str(make_card(record)).partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("another seed", {"comparison": {"seeds": [0, 1, 2], "models": {}}}),
        ("a GPU", {"device": {**RECORD["device"], "type": "cuda"}}),
    ],
)
def test_gaps_are_the_fields_that_the_record_lacks(word: str, fields: dict[str, Any]) -> None:
    assert word in section("Not measured", ALONE) and word not in section("Not measured", ALONE | fields)
    assert "other models" not in section("Not measured", ALONE)
    assert "other models" in section("Not measured", ALONE | {"baselines": {}})


def test_figures_are_those_of_the_kept_weights_and_of_the_machine() -> None:
    recipe = {**RECORD["recipe"], "watch": "validation loss"}
    device = {**RECORD["device"], "processor": "Some CPU", "cores": 4, "memory_gib": 8}
    rivals = {"baselines": {"SVM": {"test": {"accuracy": 0.9833}}}}
    record = ALONE | rivals | {"recipe": recipe, "steps": {"taken": 1200, "kept": 960}, "device": device}
    results, facts = section("Results", record), section("Training", record)
    assert "step 960 of 1,200, the best by validation loss" in results and "| optimizer steps | 1,200 |" in facts
    assert re.search(r"\| SVM \|.* 98.33 % \|", results) and "Some CPU, 4 cores, 8 GiB of memory |" in facts


def test_places_on_a_machine_are_left_out_of_the_command() -> None:
    assert published("qkv train digits out=/home/alice/runs/x seed=1") == "qkv train digits seed=1"
    assert published("qkv train '/home/alice/my recipe.yaml'") == "qkv train 'my recipe.yaml'"


FOUND = {
    "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
    "limits": {"float64": 1e-10, "bfloat16": None},
    "source": {"class": "GPT2LMHeadModel", "parameters": 4321},
    "target": {"class": "QkvDecoderForCausalLM", "parameters": 4321},
    "layers": {
        "layers.0": {"float64": {"max": 1e-15, "scale": 1.0}, "bfloat16": {"max": 0.25, "scale": 100.0}},
        "logits": {"float64": {"max": 5e-14, "scale": 100.0}, "bfloat16": {"max": 0.5, "scale": 2.0}},
    },
    "generation": {"greedy": True, "3 beams": False},
    "way back": {"tensors": 28, "different": []},
    "first diverging layer": None,
}


def parity(config: Any, architecture: str, certificate: dict[str, Any] | None = None) -> str:
    """The section on parity of a card, empty where it has none."""
    fields = {**config.to_dict(), "architectures": [architecture]}
    form = "self-contained" if architecture.startswith("Qkv") else "native"
    text = str(plain_card(fields, name="x", certificate=certificate, form=form))
    return text.partition("## Parity with transformers\n")[2].partition("\n## ")[0]


def test_the_rows_of_the_class_are_shown() -> None:
    text = parity(qkv.presets.gpt2(**TINY), "QkvDecoderForCausalLM")
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| GPT2LMHeadModel |")]
    assert rows and all(row in text for row in rows) and text.count("\n|") == len(rows) + 2
    assert parity(qkv.presets.gpt2(position="alibi", norm="rms", **TINY), "QkvDecoderForCausalLM") == ""


def test_the_certificate_is_told_by_its_worst_layers() -> None:
    text = parity(GPT2Config(), "GPT2LMHeadModel", FOUND)
    assert "| float64 | 1.0e-15 | 1.0e+00 | `layers.0` | 1.0e-10 |" in text  # worse than 5e-14 at numbers of 100
    assert "| bfloat16 | 5.0e-01 | 2.0e+00 | `logits` | none |" in text and "3 beams **different**." in text
    failed = {**FOUND, "way back": {"tensors": 28, "different": ["a", "b"]}, "first diverging layer": "layers.0"}
    text = parity(qkv.presets.gpt2(**TINY), "QkvDecoderForCausalLM", failed)
    assert "2 of 28 tensors are not" in text and "**They are not the same model**: `layers.0`" in text
    without = {name: value for name, value in FOUND.items() if name != "way back"}
    for config, architecture, certificate, word in (
        (GPT2Config(), "GPT2LMHeadModel", without, "way back"),
        (qkv.presets.bert_base(**TINY), "QkvEncoderForMaskedLM", FOUND, "QkvEncoderForMaskedLM"),
    ):
        with pytest.raises(ValueError, match=word):
            parity(config, architecture, certificate)


def test_a_converted_model_has_a_card_with_its_certificate(tmp_path: Path) -> None:
    shape = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20, "bos_token_id": 1, "eos_token_id": 2}
    official = GPT2LMHeadModel(GPT2Config(**shape))
    official.save_pretrained(tmp_path / "stock")
    model = qkv.from_transformers(official)
    model.save_pretrained(tmp_path / "own")
    certificate = certify(tmp_path / "stock", tmp_path / "own")
    text = parity(model.config, type(model).__name__, certificate)
    assert "from `GPT2LMHeadModel` to `QkvDecoderForCausalLM`" in text and "Generated tokens: greedy equal" in text
