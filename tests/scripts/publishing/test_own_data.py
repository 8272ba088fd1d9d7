"""Cards of own data: what is measured on them and what their owner says, and no word of the examples' stories."""

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from qkv.scripts.publishing.card.card import make_card, plain_card
from qkv.scripts.publishing.card.record import SHOWN
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.tasks import registry
from qkv.scripts.training.record import describe
from qkv.scripts.training.run import build
from sine_waves import recordings

CARDS = Path(__file__).resolve().parents[3] / "model_cards"
EXAMPLES = [json.loads(path.with_name("record.json").read_text()) for path in sorted(CARDS.glob("*/card.md"))]
N = 4  # words in a row that no two stories share by chance
SOUPS = [f"bowl {number:02} tasted {'salty' if number % 3 else 'sour'} tonight" for number in range(40)]
TINY = ["precision=fp32", "streaming=false", "workers=0", "holdout=0", "text.evaluated=0", "text.length=16"]


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


def table(folder: Path, **columns: list[Any]) -> list[str]:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (folder / "soups.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return [f"data={folder / 'soups.jsonl'}"]


def plain(folder: Path) -> list[str]:
    (folder / "soups.txt").write_text("\n\n".join(SOUPS))
    return [f"data={folder / 'soups.txt'}", "text.tokenizer=bpe"]


def labeled(folder: Path) -> list[str]:
    return [*table(folder, text=SOUPS, taste=[text.split()[3] for text in SOUPS]), "text.label=taste"]


def pairs(folder: Path) -> list[str]:
    words = table(folder, text=SOUPS, other=[text[::-1] for text in SOUPS])
    return [*words, "text.target=other", "text.tokenizer=bpe"]


def sounds(folder: Path) -> list[str]:
    return [f"data={recordings(folder / 'soups')}", "text.column=text", "text.tokenizer=characters"]


def image(number: int) -> Image.Image:
    noise = torch.rand(40, 48, 3, generator=torch.Generator().manual_seed(number)) * 255
    return Image.fromarray(noise.byte().numpy())


def images(folder: Path) -> list[str]:
    for number in range(24):
        place = folder / "soups" / ("salty" if number % 3 else "sour")
        place.mkdir(parents=True, exist_ok=True)
        image(number).save(place / f"{number}.png")
    return [f"data={folder / 'soups'}", "model.image_size=16", "model.patch_size=8"]


# A recipe and data of each kind, and what the programs of the card must hold of their first row.
KINDS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "docs-classify": (labeled, '"bowl '),
    "digits": (images, '"image.png"'),
    "spoken-digits": (sounds, "speech.wav"),
    "translate": (pairs, '"bowl '),
    "docs-lm": (plain, '"bowl '),
    "docs-mlm": (plain, ' {mask}".format('),
}


def record_of(name: str, *words: str) -> dict[str, Any]:
    """The record of a run that took no step, with the metrics of a model that is mostly right."""
    recipe = load(name, [*TINY, *words])
    task = registry.load(recipe)
    with torch.device("meta"):
        model = build(recipe, task)
    facts = describe(recipe, task, model, Accelerator(cpu=True))
    scores = dict.fromkeys(("accuracy", *task.metrics), 0.875)
    facts |= {"command": "qkv train soups", "metrics": dict.fromkeys(task.splits, scores)}
    facts |= {"bad_records": task.data.invalid_records.summary(), "steps": {"taken": 2, "kept": 2}}
    facts["time"] = {"training_wall_s": 1.0, "training_cpu_s": 1.0}
    return cast("dict[str, Any]", json.loads(json.dumps(facts)))


@pytest.fixture(scope="module")
def soups(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a classifier whose texts are cut, all of them."""
    return record_of("docs-classify", *labeled(tmp_path_factory.mktemp("labeled")), "text.length=5")


def with_fields(record: dict[str, Any], **groups: dict[str, Any]) -> dict[str, Any]:
    """A record with other values in its groups."""
    made = copy.deepcopy(record)
    for group, values in groups.items():
        made.setdefault(group, {}).update(values)
    return made


def section(card: str, name: str) -> str:
    return card.partition(f"## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", KINDS)
def test_nothing_of_the_stories_of_examples_is_on_cards_of_own_data(name: str, tmp_path: Path) -> None:
    make, shown = KINDS[name]
    record = record_of(name.rpartition(" ")[2], *make(tmp_path))
    card = str(make_card(record))
    config = {**record["config"], "architectures": [record["recipe"]["architecture"]]}
    usual = runs_of_words(str(plain_card(config, name="soups")))  # what cards of such a model say without any data
    assert runs_of_words(card) & stories() <= usual
    assert runs_of_words(json.dumps(record)) & stories() <= usual
    assert shown in section(card, "Use") and "on soups" in card and "# qkv-soups\n" in card
    assert "translation" not in card and "pipeline_tag: None" not in card
    assert all(len(runs_of_words(str(make_card(example))) & stories()) > 10 for example in EXAMPLES[:1])
    assert "## Data\n" in card and "\n\n\n" not in card and "None" not in card
    assert len(json.dumps(record["task"]["sample"])) < 400


def test_a_person_says_what_is_on_the_card(soups: dict[str, Any]) -> None:
    said = {"title": "How soups taste.", "description": "Reads menus.", "license": "mit", "language": "en, fr"}
    mine = {"limits": "Not for stews.", "prompt": "a bowl of peas", "card": said}
    card = str(make_card(with_fields(soups, recipe=mine)))
    shown = (said["title"], said["description"], "license: mit", "Not for stews.", 'predict("a bowl of peas")')
    assert all(text in card for text in shown)
    assert "language:\n- en\n- fr\n" in card and "bowl 0" not in card and "license:" not in str(make_card(soups))


def test_limits_are_what_was_measured(soups: dict[str, Any]) -> None:
    counts = {"train": {"salty": 24, "so|ur": 12}, "test": {"salty": 3, "so|ur": 1}}
    majority = {"class": "salty", "share": {"train": 24 / 36, "test": 0.75}}
    data = {"classes": counts, "majority": majority, "leaked": {"test": {"equal": 1, "similar": 2}}}
    bad = {"skipped": 7, "reasons": {"text: empty": 4, "a|b": 2, "third": 1, "fourth": 1}}
    card = str(make_card(with_fields(soups, data=data, bad_records=bad)))
    limits, shown = section(card, "Limits"), section(card, "Data")
    assert "class of the training split, `so|ur`, has 12 rows." in limits
    assert "always answering `salty`" in limits and "accuracy of 75.00 %; the model has 87.50 %" in limits
    assert "holds 1 rows equal and 2 similar to rows of the test split" in limits and "n = 4" in limits
    assert "| salty | 24 | 3 |\n| so\\|ur | 12 | 1 |\n| all examples | 36 | 4 |" in shown
    assert "skipped: 7.\nThe most frequent reasons: text: empty (4); a|b (2); third (1)." in shown
    many = {f"c{number}": number + 1 for number in range(SHOWN + 5)}
    shown = section(str(make_card(with_fields(soups, data={"classes": {"train": many, "test": {}}}))), "Data")
    assert shown.count("| c") == SHOWN + 1 and "| c24 | 25 | 0 |" in shown and "| and 5 more | | |" in shown


def test_texts_that_were_cut_are_warned_of(soups: dict[str, Any]) -> None:
    cut = soups["data"]["truncated"]
    assert cut["texts"] == {"train": 36, "test": 4} and cut["share"] == {"train": 1.0, "test": 1.0}
    limits = section(str(make_card(soups)), "Limits")
    assert limits.strip().startswith("- **Warning:** Texts were truncated to text.length=5 tokens: 36 of the train")
    assert f"text.length={cut['enough']} would leave 95 % of the training texts whole." in limits
    few = with_fields(soups, data={"truncated": {**cut, "share": {"train": 0.01, "test": 0.0}}})
    limits = section(str(make_card(few)), "Limits")
    assert "Warning" not in limits and "- Texts were truncated" in limits
    none = with_fields(soups, data={"truncated": {**cut, "texts": {"train": 0, "test": 0}}})
    assert "truncated" not in section(str(make_card(none)), "Limits")


@pytest.mark.parametrize(
    ("data", "source", "name"),
    [
        ("my soups.csv", "", "my-soups"),
        ("acme/soups-1.5:fr", "https://hf", "soups-1.5-fr"),
        ("\u6c64", "", "docs-classify"),
    ],
)
def test_a_model_is_named_by_its_data(soups: dict[str, Any], data: str, source: str, name: str) -> None:
    card = str(make_card(with_fields(soups, task={"name": data, "source": source})))
    assert f"# qkv-{name}\n" in card
