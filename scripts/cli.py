"""The `qkv` command: `qkv COMMAND …`, each command a file of this folder."""

import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from transformers.utils import logging

import qkv
from qkv.scripts.common.extras import MissingExtraError, load
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.training.signals import Interrupted

COMMANDS = {
    "train": "train a recipe",
    "quickstart": "train a recipe, draw figures, write the card, build the Hub folder, load it without qkv",
    "compare": "train a recipe and its stock model from several seeds, and put both on the card",
    "compare-history": "compare an RNN, an RNN with attention and a Transformer, and test the claims about them",
    "plan": "predict what a training takes: parameters, FLOPs, memory and communication of each device, time",
    "convert": "convert an official checkpoint to a qkv model, or back, and check that outputs are equal",
    "publish": "put a model on the Hub, or in a folder, so that people load it without qkv",
    "verify": "check a folder or Hub repository against its manifest: every file, tensor and way of loading",
    "card": "write the model card of a finished run, or all that are published",
    "benchmark": "time loading a published model against the installed qkv",
}
# Errors of input and environment; anything else is a bug, and shows its traceback.
EXPECTED = (ValueError, OSError, ArithmeticError, RuntimeError, MissingExtraError)


class Parser(ArgumentParser):
    """A parser that raises ValueError, so that every mistake is reported the same way."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ValueError(f"{message}; see {self.prog} --help")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the words name, and return its exit status."""
    words = sys.argv[1:] if words is None else list(words)
    logging.disable_progress_bar()  # ours is enough
    try:
        return dispatch(words)
    except KeyboardInterrupt:
        return 130
    except Interrupted as interrupted:
        if str(interrupted):
            print(f"qkv: {interrupted}", file=sys.stderr)
        return interrupted.status
    except EXPECTED as error:
        if "--debug" in words:
            raise
        # The message is one sentence already; a library's may run over lines.
        print(f"qkv: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


def dispatch(words: Sequence[str]) -> int:
    """Import and run only the command that is asked for: each brings libraries of its own."""
    if not words or words[0] in ("-h", "--help"):
        print("usage: qkv COMMAND …  (qkv COMMAND --help says more; qkv --version)\n")
        print("\n".join(f"  {name:17}{what}" for name, what in COMMANDS.items()))
        return 0 if words else 2
    if words[0] == "--version":
        print(f"qkv {qkv.__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise ValueError(f"there is no command {words[0]!r}; {did_you_mean(words[0], list(COMMANDS), 'commands')}")
    command = load(f"qkv.scripts.{words[0].replace('-', '_')}")
    parser = Parser(f"qkv {words[0]}", description=command.__doc__, epilog=f"example: {command.EXAMPLE}")
    command.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    arguments = parser.parse_intermixed_args(words[1:])
    arguments.words = shlex.join(["qkv", *words])
    command.run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
