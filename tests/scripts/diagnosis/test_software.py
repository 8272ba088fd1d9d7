"""Findings about software: versions, the compiler, variables, and extras in a table."""

from pathlib import Path

import pytest

from qkv.scripts.common.extras import EXTRAS
from qkv.scripts.diagnosis import software
from qkv.scripts.diagnosis.software import (
    PURPOSES,
    check_compiler,
    check_variables,
    check_versions,
    extra_rows,
)


def test_every_extra_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PURPOSES.keys() == set(EXTRAS.values())
    monkeypatch.setattr(software, "find_spec", lambda module: None if module == "PIL" else object())
    rows = extra_rows()
    assert rows.pop("vision: images, detection") == "pip install 'qkv[vision]' (no pillow)"
    assert set(rows.values()) == {"installed"}


def test_versions_that_are_not_asked_for_are_broken() -> None:
    lines = ["torch>=2.9", "numpy", "torch<2", "nowhere>=1", "optuna<0; extra == 'sweep'"]
    old, missing = check_versions(lines)
    assert old.kind == "broken" and old.what.endswith("and qkv asks for <2") and old.mend == "pip install 'torch<2'"
    assert missing.what == "nowhere is nothing, and qkv asks for >=1"


def test_a_missing_compiler_and_missing_headers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "g++"
    compiler.touch(mode=0o755)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(software.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert list(check_compiler({"PATH": str(tmp_path)})) == []
    (finding,) = check_compiler({"PATH": str(tmp_path), "CXX": "icpx"})
    assert finding.what == "there is no compiler of C++ (icpx)"
    compiler.unlink()
    (tmp_path / "Python.h").unlink()
    assert [finding.kind for finding in check_compiler({"PATH": str(tmp_path)})] == ["slow", "slow"]


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        ({"TOKENIZERS_PARALLELISM": "false"}, ["TOKENIZERS_PARALLELISM=false lets tokenizers use one thread"]),
        ({"TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "0"}, []),
        ({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}, ["HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE are set"]),
        ({"HF_ENDPOINT": "https://mirror"}, ["HF_ENDPOINT=https://mirror replaces huggingface.co"]),
    ],
)
def test_variables_are_told(environment: dict, what: list[str]) -> None:
    assert [finding.what for finding in check_variables(environment)] == what
