"""A process that runs qkv commands one after the other: JSON lists of words come in, what came of each goes out.

Importing transformers takes longer than most commands, and the address of the Hub is read on import: so there is one
process, with the environment of a client, for all commands of a test module.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

import checkout  # noqa: F401  before what it makes importable
from qkv.scripts.cli import main
from qkv.scripts.common import phases

phases.MOMENT = 3600.0  # a busy machine would name phases between what a test reads
for line in sys.stdin:
    order = json.loads(line)
    os.environ.update(order["environment"])
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(order["words"])
    print(json.dumps({"status": status, "out": out.getvalue(), "err": err.getvalue()}), flush=True)
