"""The page on own data: what it shows of each kind is learned as it says."""

import re
from pathlib import Path

import pytest

from checkout import ROOT
from qkv.scripts.data.inference.own_recipe import infer

PAGE = (ROOT / "scripts" / "data" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"((?:[^\n]+\n)+)\n```\w+\n(.*?)```", PAGE, re.DOTALL)
KINDS = [(*named.groups(), rows) for text, rows in BLOCKS if (named := re.search(r"`([\w.]+)`, for `([\w-]+)`", text))]


def test_all_kinds_are_seen() -> None:
    assert len(KINDS) == 7 and len({task for _, task, _ in KINDS}) == 6 and PAGE.count(", for `") == 7


@pytest.mark.parametrize(("name", "task", "rows"), KINDS, ids=[name for name, _, _ in KINDS])
def test_rows_are_learned_as_the_page_says(name: str, task: str, rows: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(rows, encoding="utf-8")
    assert infer(str(tmp_path / name))[1]["task"] == task
