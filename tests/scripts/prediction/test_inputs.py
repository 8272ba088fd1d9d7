"""Inputs of every form: words, texts, lines, folders and tables, and which column is meant."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from qkv.scripts.cli import main
from qkv.scripts.common.heads import HEADS
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.inputs import column_of, read_input
from qkv.scripts.prediction.options import OPTIONS, read_words
from qkv.scripts.prediction.source import Source


def source(task: str = "text-classification", **text: str) -> Source:
    """A model that is never loaded, of a run with these columns."""
    head = next(head for head in HEADS if head.task == task)
    return Source("runs/x", Path("runs/x"), head, "", {"recipe": {"text": text}} if text else {})


def write(folder: Path, content: str, name: str = "own.csv") -> str:
    (folder / name).write_text(content, encoding="utf-8")
    return str(folder / name)


def test_a_text_from_the_shell() -> None:
    table = read_input("Once = upon, a\ntime", source(), {})
    assert list(table.rows()) == [{"text": "Once = upon, a\ntime"}] and table.path is None
    pair = read_input("one", source(), options := {"pair": "two"})
    assert list(pair.rows()) == [{"text": "one", "pair": "two"}] and options == {"pair": "pair"}


def test_lines_of_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("eins\nzwö\n"))
    assert list(read_input("-", source(), {}).rows()) == [{"text": "eins"}, {"text": "zwö"}]


def test_values_stay_as_they_are_in_their_order(tmp_path: Path) -> None:
    table = read_input(write(tmp_path, "id,text\n007,b\n1.50,ä\n,a\n"), source(), {})
    assert [row["id"] for row in table.rows()] == ["007", "1.50", ""]
    assert [row["text"] for row in table.rows()] == ["b", "ä", "a"]


def test_a_row_that_cannot_be_read_keeps_its_place(tmp_path: Path) -> None:
    table = read_input(write(tmp_path, "id,text\n1,a\n2,b,c\n3,d\n"), source(), {})
    for _ in range(2):  # each reading is of the file
        assert [isinstance(row, InvalidRecord) for row in table.rows()] == [False, True, False]
    assert (table.columns, table.count) == (["id", "text"], 3)
    for rows, reason in {"1,a,b\n": r"b\.csv.* 3 ", "": r"b\.csv"}.items():
        with pytest.raises(ValueError, match=reason):
            read_input(write(tmp_path, f"id,text\n{rows}", "b.csv"), source(), {})


def test_pictures_of_a_folder_come_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ü/2.png", "a/1.jpg", "a/0.png", ".hidden/3.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    (tmp_path / "a" / "2.heic").touch()
    table = read_input(str(tmp_path), source("image-classification"), {})
    said = capsys.readouterr().err
    assert ".heic 1" in said and "hidden 1" in said
    assert [row["image"] for row in table.rows()] == ["a/0.png", "a/1.jpg", "ü/2.png"] and table.folder == tmp_path
    write(tmp_path, '{"image": "a/1.jpg"}\n', "metadata.jsonl")
    assert read_input(str(tmp_path), source("image-classification"), {}).count == 1


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("text-classification", "reviews.csv", "'reviews.csv'"),
        ("image-classification", "cat.png", "'cat.png'"),
        ("text-classification", " ", "' '"),
        ("automatic-speech-recognition", "hello", "'hello'"),
    ],
)
def test_an_input_that_is_not_there(task: str, given: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_input(given, source(task), {})


def test_an_input_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"own\.txt"):
        read_input(write(tmp_path, "a", "own.txt"), source("image-classification"), {})
    with pytest.raises(ValueError, match=r"\.wav"):
        read_input(str(tmp_path), source("automatic-speech-recognition"), {})
    write(tmp_path, "text\na\n", "a.csv"), write(tmp_path, "text\na\n", "b.csv")
    with pytest.raises(ValueError, match=r"a\.csv, b\.csv"):
        read_input(str(tmp_path), source("image-classification"), {})


@pytest.mark.parametrize(
    ("header", "learned", "asked", "expected"),
    [
        ("id,review", {}, {}, "review"),
        ("id,text,title", {"column": "title"}, {}, "title"),
        ("id,Text,b", {"column": "title"}, {}, "Text"),
        ("zzz", {}, {}, "zzz"),
        ("id,text,b", {}, {"text": "b"}, "b"),
    ],
)
def test_the_column_of_texts(
    header: str, learned: dict[str, str], asked: dict[str, str], expected: str, tmp_path: Path
) -> None:
    table = read_input(write(tmp_path, f"{header}\n{header}\n"), source(**learned), {})
    assert column_of(table, source(**learned), asked) == expected


def test_a_column_of_files_is_known_by_its_values(tmp_path: Path) -> None:
    table = read_input(write(tmp_path, json.dumps({"n": 1, "photo": "a.png"}), "a.jsonl"), source(), {})
    assert column_of(table, source("object-detection"), {}) == "photo"
    pq.write_table(
        pa.table({"n": [1, 2], "photo": [None, {"bytes": b"\x89PNG", "path": None}]}), tmp_path / "a.parquet"
    )
    table = read_input(str(tmp_path / "a.parquet"), source(), {})
    assert column_of(table, source("object-detection"), {}) == "photo"


@pytest.mark.parametrize(("asked", "named"), [({}, "text=b"), ({"text": "c"}, "text=c")])
def test_a_missing_column(asked: dict[str, str], named: str, tmp_path: Path) -> None:
    table = read_input(write(tmp_path, "a,b\n1,2\n"), source(), {})
    with pytest.raises(ValueError, match=named):
        column_of(table, source(), asked)


# Words of a command ---------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("command", OPTIONS)
def test_help_lists_all(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = "".join(capsys.readouterr().out.split())
    assert all(f"{key}=" in printed for key in OPTIONS[command])
