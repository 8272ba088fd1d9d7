"""The page of releases of transformers: `make upstream` puts the results of one release into its row."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import transformers_source
import upstream

import tables
from checkout import ROOT
from pages import made_with
from qkv.scripts.common.environment import commit

PAGE = ROOT / "model_cards" / "COMPATIBILITY.md"
HEAD = """# Releases of transformers

<!-- Written by `make upstream`. Change tests/compatibility, never this file. -->

All final releases that `pyproject.toml` admits. The fast suite is that of `make test`; the common suite is
[transformers' tests of its models](COMMON_SUITE.md), those of the same release, on ours; other programs are
[those of `make clients`](CLIENTS.md). Published folders are written with the release of the row, and loaded with others
where qkv is not installed; they give the same bits. [`{record}`]({record}) has the commit and the versions of each row.

| release | fast suite | common suite | other programs | published folders | tried |
| --- | --- | --- | --- | --- | --- |
"""
ADAPTED = """
## What was adapted

"""
NAMES = """
## Names of transformers

Of {release}, those that `configuration/` and `modeling/` import, override, read or set.

| kind | names |
| --- | --- |
"""
SUITES = ("fast", "common", "clients")
WORDS = {"passed": "passed", "failed": "failed", "inapplicable": "do not apply"}
Row = dict[str, Any]


def is_passed(case: ElementTree.Element) -> bool:
    return case.find("failure") is None and case.find("error") is None


def outcomes(path: Path) -> Counter[str]:
    """Count the tests in a file of JUnit; those that their own conditions leave out are not counted."""
    reasons = {reason for families in transformers_source.inapplicable().values() for reason in families.values()}
    counts: Counter[str] = Counter(passed=0, failed=0)
    for case in ElementTree.parse(path).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is None:
            counts["passed" if is_passed(case) else "failed"] += 1
        elif skipped.get("message") in reasons:
            counts["inapplicable"] += 1
    return counts


def loaded_on(path: Path) -> dict[str, bool]:
    """Return the releases that published folders were loaded on, and whether they gave the same bits there."""
    cases = [case for case in ElementTree.parse(path).iter("testcase") if case.find("skipped") is None]
    loads: dict[str, bool] = {}
    for case in cases:
        (release,) = re.findall(r"-([\d.]+)-alone", case.get("name", ""))
        loads[release] = loads.get(release, True) and is_passed(case)
    return loads


def enter(rows: dict[str, Row], release: str, results: Path) -> bool:
    """Put what was found with a release into the rows, and return whether all of it was run and passed."""
    found: Row = {suite: outcomes(path) for suite in SUITES if (path := results / f"{suite}.xml").exists()}
    works = {"fast", "common"} <= found.keys() and not any(counts["failed"] for counts in found.values())
    rows[release] = {**found, "date": date.today().isoformat(), "commit": commit(), "made with": made_with("torch")}
    for path in sorted(results.glob("published-*.xml")):
        loads = loaded_on(path)
        rows.setdefault(path.stem.removeprefix("published-"), {}).setdefault("published", {}).update(loads)
        works = works and bool(loads) and all(loads.values())
    return works


def cells(release: str, found: Row) -> Iterator[str]:
    yield release
    for suite in SUITES:
        counts = found.get(suite, {})
        yield ", ".join(f"{counts[kind]:,} {word}" for kind, word in WORDS.items() if kind in counts) or "not run"
    loads = found.get("published", {})
    yield ", ".join(f"{'load' if works else 'fail'} on {other}" for other, works in loads.items()) or "not run"
    yield found.get("date", "not yet")


def page(rows: dict[str, Row], releases: list[str], kinds: dict[str, list[str]]) -> str:
    table = [f"| {' | '.join(cells(release, rows.get(release, {})))} |" for release in releases]
    adapted = tables.beside(__file__, "adapted.yaml")
    texts = [f"- **{release}**: {adapted.get(release, 'nothing')}." for release in releases]
    names = [f"| {kind} | {len(each)} |" for kind, each in kinds.items()]
    private = f"\nThe private ones: {', '.join(f'`{name}`' for name in kinds['private'])}."
    head = HEAD.format(record=PAGE.with_suffix(".json").name) + "\n".join(table) + "\n"
    body = [
        ADAPTED.removesuffix("\n"),
        *texts,
        NAMES.format(release=version("transformers")).rstrip("\n"),
        *names,
        private,
    ]
    return head + "\n".join(body) + "\n"


def main(release: str, results: str, *releases: str) -> int:
    """Put the results of a release into the record, write the page, and return 1 where something failed."""
    record = PAGE.with_suffix(".json")
    rows = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    works = enter(rows, release, Path(results))
    record.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows, list(releases), upstream.names_by_kind()), encoding="utf-8")
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
