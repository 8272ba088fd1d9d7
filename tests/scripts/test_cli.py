"""The command line: one sentence for every mistake, help with an example, the version."""

import errno
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

import own_runs
import qkv
import stock_folders
import tables
import tiny
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
    program = "import qkv_command; raise SystemExit(qkv_command.main())"
    subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that commands read."""
    folder = tmp_path_factory.mktemp("models")
    qkv.QkvDecoderForCausalLM(tiny.decoder(position="alibi")).save_pretrained(folder / "alibi")
    stock = {name: getattr(stock_folders, name)(folder / name) for name in ("bert", "gpt2")}
    return {**stock, "alibi": folder / "alibi"}


@pytest.mark.costly(16)
@pytest.mark.parametrize(("words", "parts"), tables.beside(__file__).items())
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    words: str, parts: str | list[str], models: dict[str, Path], native: Path, runs_folder: Path,
    run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "here").mkdir()
    odd = "".join(f"{number},{'xy'[number % 2]}\n" for number in range(60))
    for name, content in {"kind": "text,kind\nwarm,odd\ndull,good\n", "done": "text,prediction\na,b\n",
                          "empty": "id,text\n1,\n", "odd": f"a,b\n{odd}"}.items():  # fmt: skip
        (tmp_path / f"{name}.csv").write_text(content)
    places = {**models, "native": native, "base": runs_folder, "tables": tmp_path, "run": run_of("classes")}
    if "{other}" in words:
        places["other"] = own_runs.data("classes", tmp_path, 30, seed=9)
    if "{texts}" in words:
        places["texts"] = run_of("texts")
    monkeypatch.chdir(tmp_path / "here")
    capsys.readouterr()
    assert main([word.format(**places) for word in shlex.split(words)]) == 1
    printed = capsys.readouterr()
    line = printed.err.splitlines()[-1]
    assert line.startswith("qkv: ") and printed.out == "" and "Traceback" not in printed.err
    mentions = [parts] if isinstance(parts, str) else parts
    assert [part for part in mentions if part.format(**places) not in line] == []
    assert list(Path().iterdir()) == []


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


def test_a_full_disk_is_named_whoever_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "dispatch", mock.Mock(side_effect=OSError(errno.ENOSPC, "", f"{tmp_path}/a")))
    assert main(["train", "digits"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"qkv: {tmp_path}/a ") and said.count("make room") == len(said.splitlines()) == 1


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
