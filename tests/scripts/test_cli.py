"""The command line: one sentence for every mistake, help with an example, the version."""

import importlib
import shlex
from argparse import ArgumentParser

import pytest

import qkv
from qkv.scripts import cli
from qkv.scripts.cli import COMMANDS, main


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"qkv {qkv.__version__}\n"


@pytest.mark.parametrize(("words", "status"), [([], 2), (["--help"], 0), (["-h"], 0)])
def test_help_lists_every_command(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == status
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    command = importlib.import_module(f"qkv.scripts.{name.replace('-', '_')}")
    assert stop.value.code == 0 and command.EXAMPLE in " ".join(capsys.readouterr().out.split())
    program, own, *words = shlex.split(command.EXAMPLE)
    parser = ArgumentParser()
    command.add_arguments(parser)
    assert (program, own) == ("qkv", name) and parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian digits", "there is no command 'trian'; did you mean 'train'?"),
        ("zzz", f"there is no command 'zzz'; the commands are {', '.join(COMMANDS)}"),
        ("convert", "the following arguments are required: SRC, DST; see qkv convert --help"),
        ("card", "card takes either a record or --all; name a run folder or a record file"),
        ("train digit", "there is no recipe 'digit'; did you mean 'digits'?"),
        ("train digits lerning_rate=1", "unknown key 'lerning_rate'; did you mean 'learning_rate'?"),
        ("train digits --sed 1", "unrecognized arguments: --sed 1; see qkv train --help"),
        ("quickstart digits batch_size=0", "batch_size=0 must be at least 1"),
        ("card nowhere.json", "there is no record at nowhere.json; give a run folder or a record file"),
    ],
)
def test_a_mistake_is_one_sentence(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    printed = capsys.readouterr()
    assert printed.err == f"qkv: {message}\n" and printed.out == ""


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="there is no recipe"):
        main(["train", "digit", "--debug"])


def test_our_own_mistakes_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(words: object) -> int:
        raise TypeError("a bug")

    monkeypatch.setattr(cli, "dispatch", broken)
    with pytest.raises(TypeError):
        main(["train", "digits"])


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "dispatch", interrupted)
    assert main(["train", "digits"]) == 130
