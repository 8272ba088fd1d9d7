"""The `qkv` command: `qkv COMMAND …`, each command a module of this folder and a function of arguments.py."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from textwrap import wrap

import qkv
from qkv.scripts.arguments import OF_DATA, OF_MODELS, OF_RECIPES, QKV, WITHOUT_MODELS, Program, about, parser_of
from qkv.scripts.common.extras import MissingExtraError, load
from qkv.scripts.common.files import full_disk_named
from qkv.scripts.common.phases import phase
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.prediction.options import read_words
from qkv.scripts.recipes import loading as recipes
from qkv.scripts.recipes.fields.help import recipe_help
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.signals import Interrupted

# Errors of input and environment; anything else is a bug, and shows its traceback.
EXPECTED = (ValueError, OSError, ArithmeticError, RuntimeError, MissingExtraError)


def main(words: Sequence[str] | None = None, program: Program = QKV) -> int:
    """Run the command that the words name, and return its exit status."""
    words = sys.argv[1:] if words is None else list(words)
    try:
        with full_disk_named():  # by what writes without naming it
            return dispatch(words, program)
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


def dispatch(words: Sequence[str], program: Program) -> int:
    """Parse the words, and only then import the command, for PyTorch takes seconds to import."""
    if not words or words[0] in ("-h", "--help"):
        print(overview(program))
        return 0 if words else 2
    if words[0] == "--version":
        print(f"qkv {qkv.__version__}")
        return 0
    name = words[0]
    if name not in program.commands:
        raise ValueError(f"there is no command {name!r}; {meant(name, program)}")
    if name in OF_RECIPES and len(words) > 2 and not words[1].startswith("-") and {"-h", "--help"} & set(words):
        print(recipe_help(shown_recipe(name, words[1]), f"{program.name} {shlex.join(words[:2])}"))
        return 0
    arguments = parse(name, words[1:], program)
    arguments.words = f"{program.name} {shlex.join(words)}"
    with phase("loading PyTorch and transformers"):
        if name not in WITHOUT_MODELS:
            qkv.import_models()
        command = load(program.module(name))
    if transformers := sys.modules.get("transformers"):
        transformers.utils.logging.disable_progress_bar()  # ours is enough
    command.run(arguments)
    return 0


def meant(word: str, program: Program) -> str:
    """Suggest a command for an unknown one."""
    if word in recipes.names() or recipes.is_data(word):
        return f"write qkv train {shlex.quote(word)}"
    if word in qkv.__all__:
        return f"qkv.{word} is for Python: import qkv, and help(qkv.{word}) says more"
    return did_you_mean(word, [*program.commands, "--help", "--version"], "commands")


def shown_recipe(command: str, name: str) -> Recipe:
    """Load a recipe by its name, or infer one from data."""
    if not (command in OF_DATA and recipes.is_data(name)):
        return recipes.load(name)
    with phase("loading PyTorch and transformers"):
        inference = load("qkv.scripts.data.inference.own_recipe")
    recipe: Recipe = inference.recipe_of(name)
    return recipe


def parse(name: str, words: Sequence[str], program: Program = QKV) -> Namespace:
    """Parse the words of a command; `--key value` is `key=value` for fields of a recipe and options of a model."""
    parser = parser_of(name, program)
    words = options_as_words(words, parser.options) if name in OF_RECIPES + OF_MODELS else words
    arguments = parser.parse_intermixed_args(words)
    if name in OF_RECIPES and name != "sweep" and not (name in OF_DATA and recipes.is_data(arguments.recipe)):
        recipes.load(arguments.recipe, arguments.overrides)  # report mistakes before torch is imported
    if name in OF_MODELS:
        arguments.input, arguments.options = read_words(name, arguments.given)
    return arguments


def options_as_words(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Rewrite each `--key value` that is no option of a command as `key=value`.

    They stand behind the recipe, where no option takes them for its values. A key without a value is `true`.
    """
    rest: list[str] = []
    overrides: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word.partition("=")[0] in options or word == "--":
            rest.append(word)
            continue
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") and "=" not in left[0] else "true"
        overrides.append(f"{key}={value}")
    after = next((index + 1 for index, word in enumerate(rest) if not word.startswith("-")), 0)
    return [*rest[:after], *overrides, *rest[after:]]


def overview(program: Program) -> str:
    """Return the list of commands, within 80 columns."""
    lines = [f"usage: {program.name} COMMAND …  (COMMAND --help says more)", ""]
    for name in program.commands:
        first = about(name, program)[0].splitlines()[0]
        lines += wrap(first, 80, initial_indent=f"  {name:17}", subsequent_indent=" " * 19)
    return "\n".join([*lines, "", f"example: {about(next(iter(program.commands)), program)[1]}"])


if __name__ == "__main__":
    sys.exit(main())
