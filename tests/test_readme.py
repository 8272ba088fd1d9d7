"""The README is true: its Python examples run as they stand, its tables are complete, and its links lead somewhere."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from qkv.configuration import CONFIGS
from qkv.configuration.axes import FeedForwardName, NormName, PatternName, PositionName

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(
        ROOT / folder / "README.md"
        for folder in ("configuration", "scripts", "scripts/recipes", "model_cards/history", "model_cards/speed")
    ),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^([^\n]+)\n+```python\n(.*?)```", README, flags=re.S | re.M)


def test_readme_has_an_example_for_each_promise():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=range(len(EXAMPLES)))
def test_example_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [name for name in targets if not name.startswith("http") and not (page.parent / name).exists()] == []


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "scripts" / "recipes" / "README.md"], ids=["short", "long"]
)
def test_recipes_are_all_in_the_table(page):
    listed = {
        name for row in re.findall(r"^\| (.*?) \|", page.read_text(), re.M) for name in re.findall(r"`([\w-]+)`", row)
    }
    assert {path.stem for path in (ROOT / "scripts" / "recipes").glob("*.yaml")} <= listed


def test_families_presets_and_words_are_all_in_the_tables():
    names = {config_class.__name__.removesuffix("Config") for config_class in CONFIGS} - {"QkvTextEncoder"}
    assert names <= set(re.findall(r"^\| `(\w+)` \|", README, re.M))
    words = {*get_args(PositionName), *get_args(PatternName), *get_args(NormName), *get_args(FeedForwardName)}
    assert {word for word in words if not re.search(rf"\b{word}\b", README)} == set()


def test_speed_is_that_of_the_record():
    record = json.loads((ROOT / "model_cards" / "speed" / "record.json").read_text())
    ours = {name: each["contenders"]["qkv"]["times_as_fast"][1] for name, each in record["workloads"].items()}
    trained = sorted(ours[name] for name in ours if name.startswith("mlm-train"))
    decoded = sorted(ours[name] for name in ours if name.startswith(("decode", "seq2seq-greedy", "seq2seq-beam")))
    (sentence,) = re.findall(r"On two CPU cores.*?model_cards/speed", README, re.DOTALL)
    told = [trained[0], trained[-1], ours["seq2seq-train"], decoded[0], decoded[-1]]
    assert re.findall(r"\d\.\d", sentence) == [f"{number:.1f}" for number in told]


def test_the_fields_of_the_table_of_words_exist():
    rows = README.split("| field | values |\n")[1].split("\n\n")[0].splitlines()
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    fields = set().union(*(config_class.known_fields() for config_class in CONFIGS))
    assert named and named <= fields
