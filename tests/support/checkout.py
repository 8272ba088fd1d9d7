"""qkv and the support code of the tests, importable from a bare checkout and in the processes that tests start."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# PYTHONPATH of processes that import the support code.
PYTHONPATH = os.pathsep.join(str(ROOT / "tests" / folder) for folder in (".", "support", "hub", "distributed", "soak"))

installed = importlib.util.find_spec("qkv")
if installed is None or installed.origin is None:  # the folder of a clone called qkv, found from beside it
    spec = importlib.util.spec_from_file_location("qkv", ROOT / "modeling" / "package" / "qkv" / "__init__.py")
    assert spec is not None and spec.loader is not None
    sys.modules["qkv"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["qkv"])


def python_files(*folders: str, apart: frozenset[str] = frozenset()) -> list[Path]:
    """The Python files in folders of the checkout, without those in a folder called as one of `apart`; never none."""
    found = []
    for folder in folders:
        paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if not apart & {*path.relative_to(ROOT).parts}]
        assert paths, f"{ROOT / folder} has no Python files"
        found += paths
    return found
