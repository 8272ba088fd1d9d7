"""The commands of `qkv` and their arguments, known without importing PyTorch.

Each function adds the arguments that `run` gets, in the file of the function's name. Its docstring is the text
of `--help`: the first line stands in the list of commands, the last one is an example.
"""

import re
from argparse import ArgumentParser, HelpFormatter
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from textwrap import fill
from typing import NoReturn

from qkv.scripts.common.words import nearest, positive
from qkv.scripts.planning.arguments import plan
from qkv.scripts.prediction.arguments import add_source, evaluate, generate, predict

DTYPES = ("float64", "float32", "float16", "bfloat16")
EXAMPLE = "Example: "


class Formatter(HelpFormatter):
    """Wrap each paragraph of a description by itself, and break no path at a hyphen."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        return "\n\n".join(fill(paragraph, width, break_on_hyphens=False) for paragraph in paragraphs)


class Parser(ArgumentParser):
    """A parser that raises ValueError, so that every mistake is reported the same way."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage; suggest the nearest option for an unknown one."""
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        close = nearest(unknown[1], self.options) if unknown else None
        raise ValueError(f"{message}; {f'did you mean {close!r}?' if close else f'see {self.prog} --help'}")

    @property
    def options(self) -> list[str]:
        """The names of all options."""
        return list(self._option_string_actions)


def train(parser: ArgumentParser) -> None:
    """Train a recipe, or a model on your data.

    A table, a folder or a data set of the Hub is learned from as its columns say, which is shown before the training
    starts: `qkv train reviews.csv`.

    In several processes, on GPUs or on one CPU: `torchrun --nproc-per-node 2 scripts/train.py digits`, or
    `accelerate launch --config_file scripts/accelerate/ddp.yaml --num_processes 2 scripts/train.py digits`.
    Accelerate's own `--cpu` starts a single process, however many are asked for.

    Example: qkv train digits seed=1 max_steps=500 model.position=rope out=runs/rope
    """
    add_recipe(parser, "a recipe (qkv recipes lists them), a YAML file, or data; with --help: its fields")


def add_recipe(parser: ArgumentParser, help: str) -> None:
    """Add a recipe and the changes to it."""
    parser.add_argument("recipe", metavar="RECIPE", help=help)
    words = "a field of the recipe and its value"
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=words)


def sweep(parser: ArgumentParser) -> None:
    """Train a recipe with several values of its fields, and print which are the best.

    A field takes a list, `learning_rate=1e-3,3e-3`, or a range, `learning_rate=1e-4..1e-2`. Lists alone make a grid;
    with a range or --trials, optuna chooses each next trial by the results of the earlier ones. Trials are ranked on
    the validation split, never on the test split, by the metric of `watch` or of the task. Each trial is a run folder
    in OUT, the study is in OUT/sweep.db; the same command trains the missing trials.

    Example: qkv sweep digits learning_rate=1e-4..1e-2 batch_size=16,32 --trials 12 out=runs/sweep
    """
    add_recipe(parser, "a recipe, a YAML file, or data; with --help: its fields")
    parser.add_argument("--trials", type=positive, metavar="N", help="number of trials (all of a grid, or 20)")


def quickstart(parser: ArgumentParser) -> None:
    """Train a recipe, draw figures, write the card, load the run folder without qkv.

    Example: qkv quickstart digits out=runs/first
    """
    train(parser)


def convert(parser: ArgumentParser) -> None:
    """Convert an official checkpoint to a qkv model, or back, and check that outputs are equal.

    DST appears whole or not at all, with the tokenizer or processor of SRC. With --check it also holds a certificate:
    both models are read from their files and compared layer by layer, and the way back has to give every tensor bit by
    bit.

    Example: qkv convert openai-community/gpt2 models/gpt2 --check
    """
    parser.add_argument("source", metavar="SRC", help="a folder or a Hub id")
    parser.add_argument("target", metavar="DST", type=Path, help="a folder that is new or empty")
    parser.add_argument("--to", choices=("stock", "qkv"), help="kind of DST (by default the kind that SRC is not)")
    parser.add_argument("--check", action="store_true", help="compare both models, and write certificate.json")
    parser.add_argument("--force", action="store_true", help="write DST even if the check fails")
    add_weights(parser)
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")


def add_weights(parser: ArgumentParser) -> None:
    """Add the options of stored weights."""
    parser.add_argument("--dtype", choices=DTYPES, help="store the weights in this precision")
    parser.add_argument("--max-shard-size", help="split weights into files of at most this size, such as 2GB")


def publish(parser: ArgumentParser) -> None:
    """Publish a model on the Hub, or in a folder, so that people load it without qkv.

    SRC is the folder of a qkv model, a run folder, or a folder that was built before: publish to a folder to look at
    everything first. Everything is scanned before any of it leaves this machine; the Hub gets it in one commit. Run
    again after a failure, this sends only what is missing.

    Example: qkv publish runs/first user/digits --private
    """
    parser.add_argument("source", metavar="SRC", type=Path, help="a model folder, a run folder, or a built folder")
    parser.add_argument("target", metavar="DST", help="user/name on the Hub, or a folder that is new or empty")
    parser.add_argument("--native", action="store_true", help="the stock transformers form, without remote code")
    parser.add_argument("--other", metavar="REPO", help="where the other form of this model is, to link it")
    parser.add_argument("--record", help="record.json, or its run folder, that the card is made from")
    visibility = parser.add_mutually_exclusive_group()
    visibility.add_argument("--private", action="store_true", default=None, help="for you and your organisation only")
    visibility.add_argument("--public", dest="private", action="store_false", help="for everybody")
    parser.add_argument("--revision", metavar="BRANCH", help="a branch, made from main if there is none")
    parser.add_argument("--pr", dest="pull_request", action="store_true", help="open a pull request instead")
    parser.add_argument("--tag", help="a name for the commit")
    parser.add_argument("--message", help="message of the commit")
    help = "sign all files: with a private key in a PEM file, or `keyless`, with your login, named in a public log"
    parser.add_argument("--sign", metavar="KEY", help=help)
    add_weights(parser)
    parser.add_argument(
        "--allow", action="append", default=[], metavar="WORD", help="a name or path that everybody may read"
    )


def verify(parser: ArgumentParser) -> None:
    """Check a folder or Hub repository against its manifest: every file, tensor and way of loading.

    Prints one table, and says in one sentence by name what differs. A repository's own code runs, in a process of its
    own, only with --expect or --trust-remote-code.

    Example: qkv verify user/name --revision v1.0 --expect models/mine
    """
    parser.add_argument("target", metavar="TARGET", help="a folder or a Hub id")
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--expect", metavar="WHAT", help="the identity the model must have, or a folder it must equal")
    help = "the signer of all files: the file of a public key, or IDENTITY,ISSUER of a keyless signature"
    parser.add_argument("--signed-by", metavar="WHO", help=help)
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code of a repository")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the table to a file, too")


def conform(parser: ArgumentParser) -> None:
    """Check any transformers model, ours or not, for silent faults.

    SOURCE is a class of transformers, `module:Class`, a folder or a Hub id. Random weights of a small size are checked,
    of a folder or Hub id those of its own size; --weights takes the stored ones. A check that failed is run again with
    other weights and inputs, and a program shows what failed. The code of a repository runs, in a process of its own,
    only with --trust-remote-code. The exit status is 1 if a check FAILED.

    Example: qkv conform BertForMaskedLM --skip lora --json report.json
    """
    parser.add_argument("source", metavar="SOURCE", help="a class, module:Class, a folder or a Hub id")
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help="run this check; may be repeated")
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave this check out")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and inputs (0)")
    parser.add_argument("--weights", action="store_true", help="check the stored weights of a folder or Hub id")
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code of a repository")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report to a file, too")


def attend(parser: ArgumentParser) -> None:
    """Show which tokens attend to which in a model for one input, as a page.

    SOURCE is a run, a model folder or a Hub id. INPUT is that of `qkv predict`, of a table one row; a second text is
    the other of a pair, the caption of an image, or the output of a model that writes texts. The page is one file
    without network: matrices of layers and heads, tokens with lines between them, patches of a picture, spectrograms,
    boxes, alignments, the steps of generation, entropy and distance of every head.

    Example: qkv attend runs/translate "twenty-one" --out attention.html
    """
    add_source(parser, "attend")
    parser.add_argument("--out", default="attention.html", metavar="FILE", help="the page (attention.html)")


def demo(parser: ArgumentParser) -> None:
    """Serve a page on which a person tries a model: draw, write, speak, upload, and see the attention.

    The page is served to this machine alone unless `--host` says otherwise; whoever reaches another host may use the
    model. `--space` writes the folder of a Gradio Space of the Hub instead.

    Example: qkv demo runs/first --port 8000
    """
    parser.add_argument("source", metavar="SOURCE", help="a run, a model folder or a Hub id")
    parser.add_argument("--port", type=int, metavar="N", help="of the page, by default the first free one from 7860 on")
    parser.add_argument("--host", help="address to listen on (127.0.0.1); 0.0.0.0 is everybody")
    help = "write the folder of a Space instead, new or empty"
    parser.add_argument("--space", type=Path, metavar="FOLDER", help=help)
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code of a model")


def list_recipes(parser: ArgumentParser) -> None:
    """List all recipes in one table: model, data, size and measured results.

    Example: qkv recipes
    """


Commands = dict[str, Callable[[ArgumentParser], None]]
COMMANDS: Commands = {
    "quickstart": quickstart,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "generate": generate,
    "convert": convert,
    "publish": publish,
    "verify": verify,
    "conform": conform,
    "attend": attend,
    "plan": plan,
    "demo": demo,
    "sweep": sweep,
    "recipes": list_recipes,
}
# Commands that take a recipe and its fields.
OF_RECIPES = ("train", "quickstart", "compare", "sweep")
OF_DATA = ("train", "quickstart", "sweep")
# Commands that take a model, an input and options.
OF_MODELS = ("predict", "evaluate", "generate", "attend")
WITHOUT_MODELS = ("recipes",)


@dataclass(frozen=True)
class Program:
    """A program: its name in the shell, the package of its commands, and their arguments by name."""

    name: str
    package: str
    commands: Commands


QKV = Program("qkv", "qkv.scripts", COMMANDS)


def about(name: str, program: Program = QKV) -> tuple[str, str]:
    """Return the description of a command, and its example."""
    description, _, example = cleandoc(program.commands[name].__doc__ or "").rpartition(f"\n\n{EXAMPLE}")
    return description, example


def parser_of(name: str, program: Program = QKV) -> Parser:
    """Return the parser of a command."""
    description, example = about(name, program)
    parser = Parser(
        f"{program.name} {name}", description=description, epilog=f"example: {example}", formatter_class=Formatter
    )
    program.commands[name](parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser
