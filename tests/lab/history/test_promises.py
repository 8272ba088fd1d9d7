"""Each system and claim of the documents has a place and a check that exist, and each command is one that qkv takes."""

import shlex

import pytest

import qkv
from checkout import ROOT
from qkv.scripts.arguments import QKV, parser_of
from qkv.scripts.lab.arguments import LAB
from qkv.scripts.lab.history.page import PROMISES
from qkv.scripts.recipes.loading import load

WORDS = {word for kind in ("systems", "claims") for row in PROMISES[kind] for word in [*row["code"], *row["checked"]]}
COMMANDS = {word for word in WORDS if word.startswith("qkv ")}
COMMANDS |= {one["command"] for one in PROMISES["published"] if one["command"]}


@pytest.mark.parametrize("word", sorted(WORDS - COMMANDS))
def test_what_is_named_exists(word: str) -> None:
    path, _, test = word.partition("::")
    if "/" in path:
        assert (ROOT / path).is_file() and (not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"))
    else:
        assert eval(word, {"qkv": qkv, **{name: getattr(qkv, name) for name in qkv.__all__}}) is not None


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_is_one_that_its_program_takes(command: str) -> None:
    program = QKV if command.startswith("qkv ") else LAB
    name, *words = shlex.split(command.removeprefix(program.name))
    assert parser_of(name, program).parse_intermixed_args(words)
    if name == "train":
        assert load(words[0], [word for word in words[1:] if not word.startswith("init=")]).data.source
