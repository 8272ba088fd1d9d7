"""SECURITY.md is true: each threat names tests, and the tests are there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import installation
from checkout import PYTHONPATH, ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")][1:]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_threat_names_tests_that_there_are(row: list[str]) -> None:
    threat, done, covered = row
    tests = TEST.findall(covered)
    assert threat and done.endswith(".") and tests and not re.sub(r"`[^`]+`|, ", "", covered)
    for file, name in tests:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_threats_are_said_once() -> None:
    assert len(ROWS) >= 13 and len({row[0] for row in ROWS}) == len(ROWS)
    sentences = [sentence for row in ROWS for sentence in re.split(r"(?<=[.;]) ", row[1])]
    assert len(set(sentences)) == len(sentences)


# With all that is installed, for extras are imported, too.
IMPORT = """
import sys
OUTSIDE = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
sys.addaudithook(lambda event, told: sys.exit(f"{event} {told}") if event in OUTSIDE else None)
import checkout
import qkv
assert qkv.QkvDecoderConfig and qkv.presets
"""


def test_importing_opens_no_connection_and_starts_no_process(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": PYTHONPATH, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", IMPORT], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_floor_of_transformers_excludes_releases_that_ran_code() -> None:
    required: dict[str, Requirement] = {each.name: each for each in installation.requirements()}
    floor = required["transformers"].specifier
    assert not floor.contains("5.22.9") and floor.contains("5.23.0") and "transformers>=5.23" in PAGE
