"""A process that runs qkv commands one after the other: JSON lists of words come in, what came of each goes out.

Importing transformers takes longer than most commands, and the address of the Hub is read on import: so there is one
process, with the environment of a client, for all commands of a test module.
"""

import importlib.util
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[1]
if importlib.util.find_spec("qkv") is None:
    spec = importlib.util.spec_from_file_location(
        "qkv", ROOT / "modeling" / "qkv" / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec and spec.loader
    sys.modules["qkv"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["qkv"])

from qkv.scripts.cli import main  # noqa: E402  the package has to be found first

for line in sys.stdin:
    order = json.loads(line)
    os.environ.update(order["environment"])
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(order["words"])
    print(json.dumps({"status": status, "out": out.getvalue(), "err": err.getvalue()}), flush=True)
