"""CSV and TSV: columns are separated by what the header shows; a header that is not clear is refused."""

from pathlib import Path

import pytest

from errors import raises_sentence
from qkv.scripts.data.delimited import delimiter_of, read_delimited
from qkv.scripts.data.loading import read
from qkv.scripts.data.pieces import InvalidRecord, Row
from qkv.scripts.data.readers import FORMATS


@pytest.mark.parametrize(
    ("name", "header", "mark"),
    [
        ("x.csv", "text,label", ","),
        ("x.csv", "text;label", ";"),
        ("x.csv", "text\tlabel", "\t"),
        ("x.csv", '"a;b;c",label', ","),
        ("x.csv", "text", ","),
        ("x.tsv", "text\ta,b,c", "\t"),
        ("x.TSV", "text", "\t"),
    ],
)
def test_the_header_shows_what_separates(tmp_path: Path, name: str, header: str, mark: str) -> None:
    path = tmp_path / name
    path.write_text(f"{header}\n{header}\n")
    (piece,) = FORMATS[path.suffix.lower()].pieces(path, "line")
    assert delimiter_of(piece) == mark
    ((row, record),) = read_delimited(piece)
    assert row == 2 and list(record) == list(record.values())


def test_it_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text;n\n1,5;2\n")
    rows = [read(str(path), streaming=streaming) for streaming in (False, True)]
    assert capsys.readouterr().err.count("separates its columns by semicolons") == 1
    assert [(row["text"], row["n"]) for table in rows for row in table] == [("1,5", 2)] * 2


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,label,text\na,b,c\n")
    with raises_sentence("x.csv", "'text'", "twice"):
        read(str(path))


def rows_of(folder: Path, text: str) -> list[Row]:
    path = folder / "x.csv"
    path.write_text(text)
    (piece,) = FORMATS[".csv"].pieces(path, "line")
    return list(read_delimited(piece))


@pytest.mark.parametrize("end", ["", 'a "word"\n'])
def test_every_row_after_a_quote_that_is_not_closed_is_invalid(tmp_path: Path, end: str) -> None:
    rows = rows_of(tmp_path, "text\n" + "good\n" * 300 + '"oops\n' + "good\n" * 100 + end)
    invalid = [number for number, row in rows if isinstance(row, InvalidRecord)]
    assert invalid == list(range(302, 403 + bool(end))) and len(rows) == 300 + len(invalid)


def test_rows_between_two_quotes_are_no_text_of_one(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "text,label\n" + '"oops,1\n' + "good,0\n" * 20 + 'oops",1\n' + "good,0\n")
    assert [number for number, row in rows if isinstance(row, InvalidRecord)] == list(range(2, 24))
    assert "the quote of row 2 is closed 21 rows later" in str(rows[0][1]) and rows[-1] == (
        24,
        {"text": "good", "label": "0"},
    )


def test_a_text_of_many_lines_is_one_record(tmp_path: Path) -> None:
    text = "".join(f"Dear all,\nline {number}\n" for number in range(20))
    assert rows_of(tmp_path, f'text,label\n"{text}",1\n') == [(42, {"text": text, "label": "1"})]
