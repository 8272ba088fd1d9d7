"""The process of a `Client`: JSON orders come in, one a line, and what came of each goes out.

An order is the words of a qkv command, or the name of a function in a file of this folder. With `clean` on the command line
qkv cannot be imported.
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

if "clean" in sys.argv:
    sys.modules["qkv"] = None  # type: ignore[assignment]
else:
    import checkout  # noqa: F401  before what it makes importable
    from qkv.scripts.cli import main
    from qkv.scripts.common import phases

    phases.MOMENT = 3600.0  # a busy machine would name phases between what a test reads


def called(path: str) -> dict[str, Any]:
    """The result of a function, or its traceback."""
    module, _, name = path.partition(".")
    try:
        return {"result": getattr(import_module(module), name)()}
    except Exception:
        return {"traceback": traceback.format_exc()[:3000]}


for line in sys.stdin:
    order = json.loads(line)
    os.environ.update(order["environment"])
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        answer = called(order["function"]) if "function" in order else {"status": main(order["words"])}
    print(json.dumps({**answer, "out": out.getvalue(), "err": err.getvalue()}), flush=True)
