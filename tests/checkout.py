"""qkv importable from a bare checkout: for the tests, and for the processes they start."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if importlib.util.find_spec("qkv") is None:
    spec = importlib.util.spec_from_file_location(
        "qkv", ROOT / "modeling" / "qkv" / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec is not None and spec.loader is not None
    sys.modules["qkv"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["qkv"])
