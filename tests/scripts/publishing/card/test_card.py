"""The card: it follows from its record, no figure in it is from elsewhere, and what is missing is said."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.scripts.publishing.card.card import companions, make_card, plain_card, write_card
from qkv.scripts.publishing.card.parity import PAGE

CARDS = Path(__file__).resolve().parents[4] / "model_cards"
TEMPLATE = CARDS.parent / "scripts" / "publishing" / "card" / "templates" / "card.md.j2"
RECORDS = sorted(path.with_name("record.json") for path in CARDS.glob("*/card.md"))
RECORD = json.loads((CARDS / "digits" / "record.json").read_text())
NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)*(?:e[+-]?\d+)?")
# Three runs of the digits' kind.
COMPARED = {
    "architecture": "Ours", "parameters": 8765, "training_cpu_s": [61.5, 62.5, 66.2],
    "metrics": {split: {name: [0.9123, 0.9345, 0.9567] for name in found} for split, found in RECORD["metrics"].items()},
}  # fmt: skip
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
    write_card(path, tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text() == path.with_name("card.md").read_text(), (
        "run `python -m qkv.scripts.lab card --all`"
    )


def test_every_card_has_a_record_and_every_record_a_recipe() -> None:
    recipes = {path.stem for path in (CARDS.parent / "scripts" / "recipes").glob("*.yaml")}
    assert {path.parent.name for path in RECORDS if path.is_file()} == {path.parent.name for path in RECORDS} <= recipes


def leaves(values: Any) -> Iterator[Any]:
    """Every value and key of a nested record, how many values a list has, and the mean of one of numbers."""
    if isinstance(values, dict | list):
        yield len(values) if isinstance(values, list) else None
        if isinstance(values, list) and values and all(isinstance(value, int | float) for value in values):
            yield sum(values) / len(values)
        for value in values.values() if isinstance(values, dict) else values:
            yield from leaves(value)
        yield from values if isinstance(values, dict) else ()
    else:
        yield values


def spellings(value: Any) -> set[str]:
    """All the ways in which a value of a record may stand on a card."""
    if isinstance(value, bool | None):
        return set()
    if isinstance(value, str):
        return set(NUMBER.findall(value))
    forms = {f"{value}", f"{value:,}", f"{value:.4f}", f"{100 * value:.2f}", f"{round(value, 4)}", f"{value:,.0f}"}
    return forms | {f"{value:.1e}"}


def strays(text: str, record: dict[str, Any]) -> set[str]:
    """Numbers on a card that neither its record says nor its template, its programs, or the page on parity."""
    known = set().union(*(spellings(value) for value in leaves(record)))
    known |= set(NUMBER.findall(PAGE.read_text()))
    words = re.sub(r"\{[{%].*?[%}]\}", "", TEMPLATE.read_text(), flags=re.DOTALL)
    prose = re.sub(r"```python\n.*?```", "", text, flags=re.DOTALL)
    return set(NUMBER.findall(prose)) - known - set(NUMBER.findall(words))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_every_number_is_in_the_record(path: Path) -> None:
    text, record = path.with_name("card.md").read_text(), json.loads(path.read_text())
    assert len(NUMBER.findall(text)) > 50
    assert strays(text, record) == set()


def test_numbers_come_from_the_record() -> None:
    record = changed(metrics__test__accuracy=0.12345, parameters=987654)
    record["baselines"] = {"a rival": {"test": {"accuracy": 0.54321}}}
    text = str(make_card(record))
    assert "12.35 %" in text and "54.32 %" in text and "987,654" in text and "value: 0.1235" in text
    assert strays(text, record) == set() and strays(text, RECORD) != set()


@pytest.mark.parametrize("form", ["self-contained", "native"])
def test_every_number_is_in_a_fuller_record(form: str) -> None:
    record = changed(
        energy={"training_j": 4321.5, "counters": ["package-7"]}, recipe__preset="vit_base_16",
        device__processor="Some CPU 17", device__cores=96, device__memory_gib=755, pictures={"a77.png": "Picture 78"},
        comparison={"seeds": [5, 8, 13], "models": {"qkv": COMPARED}},
        base_model={"id": "acme/base-21", "relation": "finetune"}, task__dataset="acme/data-22",
    )  # fmt: skip
    text = str(make_card(record, form=form))
    paper = set(NUMBER.findall(qkv.presets.vit_base_16.__doc__))
    assert strays(text, record) <= paper and {"4,322", "5, 8, 13", "96 cores", "755 GiB"} == {
        said for said in ("4,322", "5, 8, 13", "96 cores", "755 GiB") if said in text
    }


def test_limits_that_nobody_wrote_down_are_missed() -> None:
    assert "## Limits\n\nNone are written down." in str(make_card(changed(recipe__limits="")))


def test_the_card_tells_how_it_was_made() -> None:
    text = str(make_card(RECORD))
    for expected in (
        RECORD["command"], RECORD["commit"], RECORD["data"]["sha256"], RECORD["versions"]["torch"], "| batch_size |",
        "| augment.degrees |", "qkv verify user/qkv-digits", "as a stock `ViTForImageClassification`",
    ):  # fmt: skip
        assert expected in text
    assert "{{" not in text and "None" not in text and "\n\n\n" not in text


def test_each_form_says_which_it_is_and_leads_to_the_other() -> None:
    own = str(make_card(RECORD, other="acme/stock", repo="acme/own", digest="ab" * 32))
    assert "the self-contained form" in own and "[native form](https://huggingface.co/acme/stock)" in own
    assert "qkv verify acme/own" in own and "ab" * 32 in own and "custom_code" in own and "user/" not in own
    native = str(make_card(RECORD, form="native", other="https://example.org/own"))
    assert "the native form: a stock `ViTForImageClassification`" in native
    assert "[self-contained form](https://example.org/own)" in native and "- vit\n" in native
    assert "trust_remote_code" not in native and "custom_code" not in native
    assert "measured on the qkv model" in native and "measured on the qkv model" not in own


def test_there_is_no_native_card_where_there_is_no_such_architecture() -> None:
    record = changed(config__position="rope")
    with pytest.raises(ValueError, match="qkv-digits has no native form: stock transformers has no such architecture"):
        make_card(record, form="native")
    text = str(make_card(record))
    assert "There is no native form" in text and "## Parity" not in text


def test_a_card_without_a_record_says_that_nothing_was_measured() -> None:
    text = str(plain_card(saved(), name="mine", repo="acme/mine"))
    assert "- Everything" not in text and "Everything: there is no record of a training" in text
    assert "## Results" not in text and "## Training" not in text and "license:" not in text
    assert '"hidden_size": 16' in text and '"hidden_act"' not in text and "auto_map" not in text
    assert 'pipeline("fill-mask", model="acme/mine", trust_remote_code=True)' in text and "\n\n\n" not in text
    assert "of `BertForMaskedLM`" not in text and "`BertForMaskedLM`" in text


def test_a_stock_model_has_a_card_of_the_native_form() -> None:
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 16, "_name_or_path": "/home/a/b"}
    text = str(plain_card(config, name="mine", form="native"))
    assert "a stock `GPT2LMHeadModel`" in text and '"n_embd": 16' in text and "/home" not in text
    assert 'pipeline("text-generation", model="user/mine")' in text and "| GPT2LMHeadModel |" in text


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**saved(), "architectures": []}, "config of mine names no class in 'architectures'; give that of a saved"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertModel is a stock model, which has no self-cont"),
        (
            {"model_type": "brt", "architectures": ["BertModel"]},
            "model_type='brt' is known neither to qkv nor to trans",
        ),
        ({**saved(), "architectures": ["QkvNothing"]}, "there is no architecture 'QkvNothing' in this qkv"),
        ({"architectures": ["BertModel"]}, "config of mine names no type in 'model_type'"),
    ],
)
def test_a_config_that_says_too_little_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plain_card(config, name="mine", form="native" if "brt" in message else "self-contained")


@pytest.mark.parametrize(
    "path",
    [
        *("recipe.name", "recipe.limits", "task.kind", "data.sizes", "metrics", "seed", "device.type", "commit"),
        "data.sizes.test",  # the size of a split with figures
    ],
)
def test_a_record_that_lacks_a_field_is_refused_by_its_name(path: str) -> None:
    record = copy.deepcopy(RECORD)
    *groups, last = path.split(".")
    inner = record
    for group in groups:
        inner = inner[group]
    del inner[last]
    with pytest.raises(ValueError, match=f"the record lacks '{path}', which a card cannot do without"):
        make_card(record)


def test_a_task_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(
        ValueError, match="the record's task.kind='mind-reading' is not one of automatic-speech-recognition, cont"
    ):
        make_card(changed(task__kind="mind-reading"))


@pytest.mark.parametrize("text", ["{}", "not json", "[]"])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match="x.json is not the record of a finished run: "):
        write_card(tmp_path / "x.json", tmp_path / "card.md")
    assert not (tmp_path / "card.md").exists()


def test_pictures_stand_on_the_card_and_lie_beside_it(tmp_path: Path) -> None:
    record = changed(pictures={"curve.png": "Loss by step"})
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="curve.png is missing, which .*record.json names as a picture; put it there"):
        write_card(tmp_path / "record.json", tmp_path / "card.md")
    (tmp_path / "curve.png").write_bytes(b"picture")
    write_card(tmp_path / "record.json", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "![Loss by step](curve.png)" in card and f"`qkv quickstart {RECORD['recipe']['name']}`" in card
    assert "qkv quickstart" not in str(make_card(changed(recipe__name="mine")))
    assert companions(record, tmp_path) == {"curve.png": b"picture"}
