"""model_cards/REPORTS.md names its sources, and for each row a test that is here."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "model_cards" / "REPORTS.md"
SECTIONS = dict(
    re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
REPORT = re.compile(r"\[([\w.-]+/[\w.-]+)#(\d+)\]\((https://github\.com/[^)]+)\)")
TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)` \|$", re.MULTILINE)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_five_reports_and_a_test_for_each_row(section: str) -> None:
    rows = [line for line in SECTIONS[section].splitlines() if line.startswith("|")][2:]
    reports = REPORT.findall(SECTIONS[section])
    assert len(rows) >= 5 and len({repository for repository, *_ in reports}) >= 4
    assert len(set(reports)) == len(reports)
    for repository, number, link in reports:
        assert link in {f"https://github.com/{repository}/{kind}/{number}" for kind in ("issues", "pull")}
    assert all(REPORT.search(row) or "| the same |" in row for row in rows)
    assert len(TEST.findall(SECTIONS[section])) == len(rows)


def test_the_tests_are_those_of_the_page() -> None:
    named = {(file, name) for text in SECTIONS.values() for file, name in TEST.findall(text)}
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    here = {(path.name, name) for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    assert named == here
