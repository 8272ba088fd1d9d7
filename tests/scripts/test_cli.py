"""The command line: one sentence for every mistake, help with an example, the version."""

import importlib
import shlex
from argparse import ArgumentParser

import pytest

import qkv
from qkv.scripts import cli
from qkv.scripts.cli import COMMANDS, main
from qkv.scripts.common.resources import table


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


@pytest.mark.parametrize(("words", "message"), table(__file__).items())
def test_a_mistake_is_one_sentence(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    printed = capsys.readouterr()
    assert printed.err == f"qkv: {message.format(commands=', '.join(COMMANDS))}\n" and printed.out == ""


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
