"""Run the Python of model cards where qkv cannot be imported: `python -I card_reader.py CONSUMER`, programs as JSON.

What each program printed comes back on standard output, as JSON.
"""

import contextlib
import importlib.util
import io
import json
import sys


def main() -> None:
    spec = importlib.util.spec_from_file_location("consumer", sys.argv[1])
    consumer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(consumer)
    sys.meta_path.insert(0, consumer.Hidden())
    printed = []
    for program in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
        printed.append(out.getvalue().strip())
    json.dump(printed, sys.stdout)


if __name__ == "__main__":
    main()
