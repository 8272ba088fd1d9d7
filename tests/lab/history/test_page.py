"""The page: it follows from its record, and no figure or verdict in it is from elsewhere."""

import copy
import json
import re
from pathlib import Path

import pytest

from qkv.scripts.lab.compare_history import PAGES
from qkv.scripts.lab.history.claims import verdicts
from qkv.scripts.lab.history.figures import FIGURES
from qkv.scripts.lab.history.models import TRANSFORMER
from qkv.scripts.lab.history.page import page

PUBLISHED = Path(__file__).resolve().parents[3] / "model_cards" / "history"
RECORD = json.loads((PUBLISHED / "record.json").read_text(encoding="utf-8"))
PAGE = (PUBLISHED / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "template"), PAGES.items())
def test_a_published_page_follows_from_its_record(name: str, template: str) -> None:
    text = (PUBLISHED / name).read_text(encoding="utf-8")
    assert page(RECORD, template) == text, (
        "run `python -m qkv.scripts.lab compare-history --page --out model_cards/history`"
    )


def test_pictures_and_tables_are_whole() -> None:
    assert set(re.findall(r"!\[[^]]*\]\(([^)]+)\)", PAGE)) == set(FIGURES)
    assert all((PUBLISHED / name).is_file() for name in FIGURES)
    tables = re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.M)
    assert len(tables) == 11
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_verdicts_and_figures_are_the_records() -> None:
    record = copy.deepcopy(RECORD)
    record["quality"][TRANSFORMER][-1][1] = 0.98765 if RECORD["quality"][TRANSFORMER][-1][1] < 0.9 else 0.12345
    text = page(record)
    share = f"{100 * record['quality'][TRANSFORMER][-1][1]:.1f} %"
    assert share in text and share not in PAGE
    assert verdicts(record) != verdicts(RECORD)
    assert all(f"{one['measured']} | **{one['verdict']}** |" in text for one in verdicts(record))


def test_costs_that_were_not_measured_are_left_out() -> None:
    record = copy.deepcopy(RECORD)
    record["lengths"]["stacks"]["full"] = {
        name: curve[:2] for name, curve in RECORD["lengths"]["stacks"]["full"].items()
    }
    row = next(line for line in page(record).splitlines() if line.startswith("| full |"))
    assert row.count(" — |") == 3 and "—" not in next(line for line in PAGE.splitlines() if line.startswith("| full |"))
    assert "| 65,536 | — | " in page(record)
