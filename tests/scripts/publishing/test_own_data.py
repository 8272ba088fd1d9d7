"""Cards of own data: what is measured on them and what their owner says, and no word of the examples' stories."""

import copy
import json
import platform
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import own_runs
from qkv.scripts.publishing.card.card import make_card, plain_card
from qkv.scripts.publishing.card.record import SHOWN
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.tasks.chat import USAGE

CARDS = Path(__file__).resolve().parents[3] / "model_cards"
EXAMPLES = [json.loads(path.with_name("record.json").read_text()) for path in sorted(CARDS.glob("*/card.md"))]
N = 4  # words in a row that no two stories share by chance


def words_of(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def runs_of_words(*texts: str) -> set[tuple[str, ...]]:
    """Every run of N words of the texts."""
    known: set[tuple[str, ...]] = set()
    for text in texts:
        words = words_of(text)
        known |= {tuple(words[first : first + N]) for first in range(len(words) - N + 1)}
    return known


@cache
def stories() -> set[tuple[str, ...]]:
    """The words of every recipe's title, limits and prompt, and of the example data's names, pages and programs."""
    recipes = [load(name) for name in names()]
    told = [text for recipe in recipes for text in (recipe.title, recipe.limits, recipe.prompt)]
    pages = [record["task"].get(name, "") for record in EXAMPLES for name in ("title", "source", "usage")]
    return runs_of_words(*told, *pages)


# Kinds of runs, and a word of the program on their cards: of the first row, or the name of a file.
KINDS = {
    **dict.fromkeys(("classes", "targets", "texts", "masked", "infilled"), "|".join(own_runs.WORDS)),
    "chats": '"hi"',
    "images": '"image.png"',
    "ctc": "speech.wav",
}


@pytest.fixture
def record(run_of: Callable[[str], Path]) -> dict[str, Any]:
    """The record of a classifier."""
    return dict(json.loads((run_of("classes") / "record.json").read_text()))


def with_fields(record: dict[str, Any], **groups: dict[str, Any]) -> dict[str, Any]:
    """A record with other values in its groups."""
    made = copy.deepcopy(record)
    for group, values in groups.items():
        made.setdefault(group, {}).update(values)
    return made


def section(card: str, name: str) -> str:
    return card.partition(f"## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.costly(2)
def test_nothing_of_the_stories_of_examples_is_on_cards_of_own_data(kind: str, run_of: Callable[[str], Path]) -> None:
    record, card = json.loads((run_of(kind) / "record.json").read_text()), (run_of(kind) / "README.md").read_text()
    config = {**record["config"], "architectures": [record["recipe"]["architecture"]]}
    # What cards of such a model say without any data, the version of Python, and the program of chats.
    usual = runs_of_words(str(plain_card(config, name=kind)), f"Python {platform.python_version()}", USAGE)
    assert runs_of_words(card) & stories() <= usual
    assert runs_of_words(json.dumps(record)) & stories() <= usual
    assert re.search(KINDS[kind], section(card, "Use")) and f"on {kind}.jsonl" in card and f"# qkv-{kind}\n" in card
    assert all(len(runs_of_words(str(make_card(example))) & stories()) > 10 for example in EXAMPLES[:1])
    assert "## Data\n" in card and "\n\n\n" not in card and "None" not in card
    assert len(json.dumps(record["task"]["sample"])) < 400


def test_a_person_says_what_is_on_the_card(record: dict[str, Any]) -> None:
    assert "trained from scratch" in str(make_card(record))
    assert "trained further from `mlm`" in str(make_card(with_fields(record, recipe={"init": "mlm"})))
    said = {"title": "How soups taste.", "description": "Reads menus.", "license": "mit", "language": "en, fr"}
    mine = {"limits": "Not for stews.", "prompt": "a bowl of peas", "card": said}
    card = str(make_card(with_fields(record, recipe=mine)))
    shown = (said["title"], said["description"], "license: mit", "Not for stews.", 'predict("a bowl of peas")')
    assert all(text in card for text in shown)
    assert (
        "language:\n- en\n- fr\n" in card
        and record["task"]["sample"]["prompt"] not in card
        and "license:" not in str(make_card(record))
    )


def test_limits_are_what_was_measured(record: dict[str, Any]) -> None:
    counts = {"train": {"salty": 24, "so|ur": 12}, "test": {"salty": 3, "so|ur": 1}}
    majority = {"class": "salty", "share": {"train": 24 / 36, "test": 0.75}}
    sizes = {"train": 36, "test": 4}
    data = {"sizes": sizes, "classes": counts, "majority": majority, "leaked": {"test": {"equal": 1, "similar": 2}}}
    bad = {"skipped": 7, "reasons": {"text: empty": 4, "a|b": 2, "third": 1, "fourth": 1}}
    card = str(make_card(with_fields(record, data=data, bad_records=bad, metrics={"test": {"accuracy": 0.875}})))
    limits, shown = section(card, "Limits"), section(card, "Data")
    assert "class of the training split, `so|ur`, has 12 rows." in limits
    assert "always answering `salty`" in limits and "accuracy of 75.00 %; the model has 87.50 %" in limits
    assert "rows of the test split that the training split holds" in limits and "n = 4" in limits
    assert "| salty | 24 | 3 |\n| so\\|ur | 12 | 1 |\n| all examples | 36 | 4 |" in shown
    assert "skipped: 7.\nThe most frequent reasons: text: empty (4); a|b (2); third (1)." in shown
    many = {f"c{number}": number + 1 for number in range(SHOWN + 5)}
    shown = section(str(make_card(with_fields(record, data={"classes": {"train": many, "test": {}}}))), "Data")
    assert (
        sum(f"| {name} |" in shown for name in many) == SHOWN
        and "| c24 | 25 | 0 |" in shown
        and "| and 5 more | | |" in shown
    )


def test_texts_that_were_cut_are_warned_of(record: dict[str, Any]) -> None:
    cut = {**record["data"]["truncated"], "length": 5, "enough": 9}
    cut |= {"texts": {"train": 36, "test": 4}, "share": {"train": 1.0, "test": 1.0}}
    limits = section(str(make_card(with_fields(record, data={"truncated": cut}))), "Limits")
    assert limits.strip().startswith("- **Warning:** Texts were truncated to text.length=5 tokens: 36 of the train")
    assert "text.length=9 would leave 95 % of the training texts whole." in limits
    few = with_fields(record, data={"truncated": {**cut, "share": {"train": 0.01, "test": 0.0}}})
    limits = section(str(make_card(few)), "Limits")
    assert "Warning" not in limits and "- Texts were truncated" in limits
    none = with_fields(record, data={"truncated": {**cut, "texts": {"train": 0, "test": 0}}})
    assert "truncated" not in section(str(make_card(none)), "Limits")


@pytest.mark.parametrize(
    ("data", "source", "name"),
    [("my soups.csv", "", "my-soups"), ("acme/soups-1.5:fr", "https://hf", "soups-1.5-fr"), ("\u6c64", "", "classes")],
)
def test_a_model_is_named_by_its_data(record: dict[str, Any], data: str, source: str, name: str) -> None:
    card = str(make_card(with_fields(record, task={"name": data, "source": source})))
    assert f"# qkv-{name}\n" in card


def test_each_class_has_a_row_and_few_rows_that_chose_the_step_are_a_limit(record: dict[str, Any]) -> None:
    assert set(record["by_class"]["test"]) <= {"good", "bad"} and "class by class" in str(make_card(record))
    scores = {
        f"class {number}": {"precision": 0.25, "recall": 0.5, "f1": 1 / 3, "count": 99 - number} for number in range(22)
    }
    made = with_fields(record, by_class={"test": scores}, recipe={"watch": "validation loss"})
    sizes = [{"train": 90, "validation": count, "test": 40} for count in (6, 30)]
    cards = [str(make_card(with_fields(made, data={"sizes": own, "classes": {}}))) for own in sizes]
    results = section(cards[0], "Results")
    assert "| class 0 | 99 | 25.00 % | 50.00 % | 33.33 % |" in results and "class 20" not in results
    assert ["6 examples of the validation split" in section(card, "Limits") for card in cards] == [True, False]
