"""Run the Python of model cards where qkv cannot be imported: `python -I card_programs.py`, programs as JSON.

What each program printed comes back on standard output, as JSON.
"""

import contextlib
import io
import json
import sys


def main() -> None:
    sys.modules["qkv"] = None  # type: ignore[assignment]
    printed = []
    for program in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
        printed.append(out.getvalue().strip())
    json.dump(printed, sys.stdout)


if __name__ == "__main__":
    main()
