"""qkv and the support code of the tests, importable from a bare checkout and in the processes that tests start."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# PYTHONPATH of processes that import the support code.
PYTHONPATH = os.pathsep.join(str(ROOT / "tests" / folder) for folder in (".", "support", "hub", "distributed", "soak"))

if importlib.util.find_spec("qkv") is None:
    spec = importlib.util.spec_from_file_location(
        "qkv", ROOT / "modeling" / "qkv" / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec is not None and spec.loader is not None
    sys.modules["qkv"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["qkv"])
