"""Options and the input among the words of a command, checked before anything is loaded."""

from typing import Any

import pytest

from qkv.scripts.cli import main
from qkv.scripts.prediction.options import OPTIONS, read_words


@pytest.mark.parametrize(
    ("words", "given", "options"),
    [
        ([], None, {}),
        (["Once = upon"], "Once = upon", {}),
        (["text.column=title", "a.csv", "batch-size=3"], "a.csv", {"text": "title", "batch_size": 3}),
        (["threshold=0", "y.csv"], "y.csv", {"threshold": 0.0}),
    ],
)
def test_words(words: list[str], given: str | None, options: dict[str, Any]) -> None:
    assert read_words("predict", words) == (given, options)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("batch_sise=3", "'batch_size'"),
        ("batch_size=0", "batch_size=0"),
        ("--batch-size 0", "batch_size=0"),
        ("batch_size=x", "batch_size='x'"),
        ("threshold=-1", "threshold=-1"),
        ("Once upon", "'upon'"),
    ],
)
def test_mistakes_name_their_word(words: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "runs/none", *words.split()]) == 1
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("command", OPTIONS)
def test_help_lists_all(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = "".join(capsys.readouterr().out.split())
    assert all(f"{key}=" in printed for key in OPTIONS[command])
