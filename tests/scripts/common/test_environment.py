"""Versions, processor and commit are those of the machine and the checkout."""

from pathlib import Path

import pytest

from qkv.scripts.common import environment


def test_the_processor_is_named_where_linux_names_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU: fast\nflags\t: fpu\n")
    assert environment.processor(tmp_path / "cpuinfo") == "Some CPU: fast"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\n")
    assert environment.processor(tmp_path / "cpuinfo") is None and environment.processor(tmp_path / "nothing") is None


def test_the_commit_is_that_of_the_checkout_or_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = environment.commit()
    assert found is None or len(found.split()[0]) == 40
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "scripts" / "common" / "environment.py"))
    assert environment.commit() is None
