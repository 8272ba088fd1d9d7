"""The README is true: every Python example in it runs as it stands, and what it points to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^([^\n]+)\n+```python\n(.*?)```", README, flags=re.S | re.M)


def test_readme_has_an_example_for_each_promise():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=range(len(EXAMPLES)))
def test_example_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    missing = [target for target in targets if not target.startswith("http") and not (ROOT / target).exists()]
    assert targets and not missing
