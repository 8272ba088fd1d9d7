"""Options and the input among the words of a command."""

from typing import Any

import pytest

from qkv.scripts.cli import main
from qkv.scripts.prediction.options import OPTIONS, read_words


@pytest.mark.parametrize(
    ("words", "given", "options"),
    [
        ([], None, {}),
        (["Once = upon"], "Once = upon", {}),
        (["text.column=title", "a.csv", "bs=3"], "a.csv", {"text": "title", "batch_size": 3}),
        (["threshold=0", "x=y.csv"[2:]], "y.csv", {"threshold": 0.0}),
    ],
)
def test_words(words: list[str], given: str | None, options: dict[str, Any]) -> None:
    assert read_words("predict", words) == (given, options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("batch_sise=3", "unknown option 'batch_sise'; did you mean 'batch_size'?"),
        ("batch_size=0", "batch_size=0 must be at least 1"),
        ("batch_size=x", "batch_size='x' is not a whole number"),
        ("threshold=2", "threshold=2 must be at most 1"),
        ("Once upon", "'upon' is a second input after 'Once'; put a text between quotation marks"),
    ],
)
def test_a_mistake_is_a_sentence_before_anything_is_loaded(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "runs/none", *words.split()]) == 1
    assert message in capsys.readouterr().err


def test_options_may_be_typed_with_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "runs/none", "a.csv", "--batch-size", "0"]) == 1
    assert "batch_size=0 must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("command", OPTIONS)
def test_help_lists_all(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = "".join(capsys.readouterr().out.split())
    assert all(f"{key}=" in printed for key in OPTIONS[command])
