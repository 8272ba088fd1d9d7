"""`qkv attend`: what it writes and prints, and mistakes in one sentence."""

from pathlib import Path

import pytest

import stock_folders
from families.attention_pages import data_of
from qkv.scripts.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stock_folders.bert(tmp_path_factory.mktemp("models") / "bert")


def test_a_page_is_written_and_it_is_said_where(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["attend", str(folder), "warm dull", "great"]) == 0
    size = Path("attention.html").stat().st_size
    printed = capsys.readouterr().out
    assert f"attention.html: {size:,} bytes" in printed and "Predicted: " in printed
    page = Path("attention.html").read_text()
    assert "bert: BertForSequenceClassification" in page and str(folder) not in page
    data = data_of(page)
    assert data["sequences"][0]["labels"] == ["[CLS]", "warm", "dull", "[SEP]", "great", "[SEP]"]
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]


def test_layers_and_heads_are_words(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.html"
    assert main(["attend", str(folder), "warm " * 40, "heads=1", "layers=-1", "--out", str(out)]) == 0
    assert "qkv: The text has 42 tokens" in capsys.readouterr().err
    (stack,) = data_of(out.read_text())["stacks"]
    assert stack["heads"] == [1] and len(stack["layers"]) == 1


@pytest.mark.parametrize(
    ("words", "mentions"),
    [
        ([], ("input",)),
        (["warm", "--out", "a.gif"], ("a.gif", ".html")),
        (["warm", "--out", "nowhere/a.html"], ("nowhere",)),
        (["warm", "layers=one"], ("layers=one", "0,-1")),
        (["warm", "layers=5"], ("layers", "5")),
        (["warm", "dull", "slow"], ("second input",)),
        (["warm", "depth=1"], ("'depth'",)),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_written(
    words: list[str], mentions: tuple[str, ...], folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["attend", str(folder), *words]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("qkv: ") and all(mention in last for mention in mentions)
    assert list(tmp_path.iterdir()) == []
