"""A release has one row, which a new run replaces."""

import json
import re
from pathlib import Path

import pytest
import releases_page

import installation
import tables
from checkout import ROOT

CASES = {
    "fast": "<testcase/><testcase><properties/></testcase><testcase><skipped message='no network'/></testcase>",
    "common": "<testcase/><testcase><skipped message='its positions are no rotations'/></testcase>",
    "published-5.23.0": "<testcase name='test[/venv-5.24.0-alone/bin/python]'/>",
    "published-5.24.0": "<testcase name='test[/venv-5.24.0-alone/bin/python]'/>",
}
FAILED = {
    "fast": "<testcase/><testcase><failure/></testcase>",
    "common": "<testcase><error/></testcase>",
    "published-5.23.0": CASES["published-5.23.0"].replace("/>", "><failure/></testcase>") + CASES["published-5.23.0"],
    "published-5.24.0": "<testcase><skipped message='no interpreter'/></testcase>",
}


def results(folder: Path, **changed: str) -> Path:
    for name, cases in {**CASES, **changed}.items():
        (folder / f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return folder


def test_a_run_replaces_its_row_and_enters_what_others_wrote_for_it(tmp_path: Path) -> None:
    rows = {"5.23.0": {"fast": {"passed": 7}, "published": {"5.23.0": True}}, "5.24.0": {"clients": {"failed": 1}}}
    assert releases_page.enter(rows, "5.24.0", results(tmp_path))
    assert rows["5.23.0"] == {"fast": {"passed": 7}, "published": {"5.23.0": True, "5.24.0": True}}
    assert {suite: rows["5.24.0"].get(suite) for suite in releases_page.SUITES} == {
        "fast": {"passed": 2, "failed": 0},
        "common": {"passed": 1, "failed": 0, "inapplicable": 1},
        "clients": None,
    }


@pytest.mark.parametrize("suite", FAILED)
def test_a_failure_is_told(tmp_path: Path, suite: str) -> None:
    assert not releases_page.enter({}, "5.24.0", results(tmp_path, **{suite: FAILED[suite]}))


def test_every_release_has_a_row() -> None:
    text = releases_page.page({}, ["5.24.0", "5.23.0"], {"private": ["Model._name"], "public": []})
    assert re.findall(r"^\| (5\S+) .*\| not yet \|$", text, re.MULTILINE) == ["5.24.0", "5.23.0"]


def test_the_releases_that_ci_runs_have_been_tried() -> None:
    rows = json.loads(releases_page.PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    required = next(each for each in installation.requirements() if each.name == "transformers")
    tried = {*re.findall(r"^transformers==(.*)$", pins, re.MULTILINE)}
    tried |= tables.beside(releases_page.__file__, "adapted.yaml").keys()
    assert tried == rows.keys() and all(required.specifier.contains(release) for release in rows)
    for found in rows.values():
        assert [found[suite]["failed"] for suite in ("fast", "common")] == [0, 0]
        assert set(found["published"].values()) == {True}
