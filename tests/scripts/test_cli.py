"""The command line: one sentence for every mistake, help with an example, the version."""

import re
import resource
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

import qkv
import tables
from qkv.scripts import cli
from qkv.scripts.arguments import COMMANDS, about, parser_of
from qkv.scripts.cli import main


@pytest.mark.parametrize(("words", "status"), [([], 2), (["--help"], 0), (["--version"], 0)])
def test_help_lists_every_command_and_the_version_is_that_of_the_package(
    words: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    printed = capsys.readouterr().out
    if words == ["--version"]:
        assert printed == f"qkv {qkv.__version__}\n"
    else:
        assert all(f"  {name} " in printed for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    text, example = about(name)
    printed = capsys.readouterr().out
    paragraphs = [" ".join(paragraph.split()) for paragraph in printed.split("\n\n")]
    assert {" ".join(one.split()) for one in text.split("\n\n")} <= set(paragraphs)
    assert stop.value.code == 0 and example in " ".join(paragraphs) and max(map(len, printed.splitlines())) <= 80
    program, own, *words = shlex.split(example)
    assert (program, own) == ("qkv", name) and parser_of(name).parse_intermixed_args(words)


HEAVY = {"torch", "transformers", "datasets", "accelerate", "pandas"}
LIGHT = """
import sys
from qkv_command import main
for line in sys.stdin:
    sys.argv[1:] = line.split()
    try:
        status = main()
    except SystemExit as stop:
        status = stop.code
    print("status", status, *({heavy} & sys.modules.keys()))
"""


def test_help_and_mistakes_import_nothing_heavy() -> None:
    lines = ["--help", "--version", "train digits --help", "recipes", *(f"{name} --help" for name in COMMANDS)]
    wrong = ["", "trian", "train", "train digit", "train digits --sed 1", "train digits lerning_rate=1", "plan --batch"]
    words = [sys.executable, "-c", LIGHT.format(heavy=HEAVY)]
    done = subprocess.run(words, input="\n".join([*lines, *wrong]), capture_output=True, text=True, check=True)
    ends = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert ends == ["status 0"] * len(lines) + ["status 2"] + ["status 1"] * (len(wrong) - 1)


def test_help_takes_less_than_a_second() -> None:
    """Of the processor, for a machine may be busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([Path(sys.executable).with_name("qkv"), "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def test_a_command_is_a_module_and_a_function() -> None:
    scripts = Path(cli.__file__).parent
    files = [*scripts.glob("*.py"), *(path.parent for path in scripts.glob("*/__init__.py"))]
    assert {function.__name__ for function in COMMANDS.values()} == {
        path.stem for path in files if "\ndef run(" in (path / "__init__.py" if path.is_dir() else path).read_text()
    }


@pytest.mark.parametrize(("words", "part"), tables.beside(__file__).items())
def test_a_mistake_is_one_sentence(words: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    printed = capsys.readouterr()
    assert re.fullmatch(r"qkv: [^\n]+\n", printed.err) and part in printed.err and printed.out == ""


@pytest.fixture
def own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = [f"text {number},{'ab'[number % 2]}" for number in range(40)]
    Path("mine.csv").write_text("\n".join(["text,kind", *rows]))
    return "mine.csv"


def test_help_on_own_data_shows_what_is_inferred_and_its_fields(
    own_table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", own_table, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "text-classification" in printed and "\n  text.label=kind " in printed


def test_data_are_told_from_recipes(own_table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([own_table]) == 1 and f"qkv train {own_table}" in capsys.readouterr().err
    assert main(["train", "mine.cvs"]) == main(["train", "./mine.cvs"]) == 1
    assert capsys.readouterr().err.count("'mine.csv'") == 2


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="digits"):
        main(["train", "digit", "--debug"])


@pytest.mark.parametrize("error", [TypeError, KeyboardInterrupt])
def test_our_own_mistakes_are_not_hidden_and_interrupts_are(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "dispatch", mock.Mock(side_effect=error))
    with pytest.raises(TypeError) if error is TypeError else nullcontext():
        assert main(["train", "digits"]) == 130


def test_unknown_options_are_fields() -> None:
    words = ["--debug", "digits", "--lr", "1e-3", "seed=1", "--epochs=2", "--streaming", "--also", "a", "init=b"]
    assert cli.options_as_words(words, ["--debug", "--also"]) == [
        "--debug", "digits", "lr=1e-3", "epochs=2", "streaming=true", "seed=1", "--also", "a", "init=b",
    ]  # fmt: skip
