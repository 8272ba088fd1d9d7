"""Readers: every row with its number, whatever is wrong with another; pieces of a file make up the file."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data import pieces as cutting
from qkv.scripts.data.column_types import stored_media_of
from qkv.scripts.data.loading import read
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.data.readers import FORMATS, delimiter_of, format_of

LINES = st.lists(st.sampled_from([b"", b"a", b'{"n": 1}', b"some more words", b"  "]), max_size=20)
BAD = "bad"


def rows(path: Path, documents: str = "line") -> list[tuple[int, Any]]:
    """(row in the file, its values or that it is bad)."""
    pieces = FORMATS[path.suffix].pieces(path, documents)
    found = [row for piece in pieces for row in format_of(piece).rows(piece)]
    return [(number, BAD if isinstance(row, InvalidRecord) else row) for number, row in found]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_bad_line_is_told_from_its_neighbours(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\n\n{"a": "\xff"}\n{"a":\n[1]\n' + b"[" * 99999 + b'\n{"a": 2}'
    expected = [(1, {"a": 1}), (3, BAD), (4, BAD), (5, BAD), (6, BAD), (7, {"a": 2})]
    assert rows(written(tmp_path / "x.jsonl", content)) == expected
    with raises_sentence("row 3", "byte 7", "encoding=latin-1"):
        list(read_all(tmp_path / "x.jsonl"))


def read_all(path: Path) -> Any:
    """Validate a table without allowing a bad record."""
    from qkv.scripts.data.validation import RecordValidation, valid_rows

    return valid_rows(read(str(path)), {}, RecordValidation())


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("line", [(1, "a"), (2, "b"), (5, "c"), (7, "d")]),
        ("paragraph", [(1, "a\nb"), (5, "c"), (7, "d")]),
        ("file", [(1, "a\nb\n\n \nc\n\nd")]),
    ],
)
def test_documents_of_text(tmp_path: Path, documents: str, expected: list[Any]) -> None:
    path = written(tmp_path / "x.txt", "a\nb\n\n \nc\n\nd\n")
    assert rows(path, documents) == [(row, {"text": text}) for row, text in expected]
    damaged = written(tmp_path / "y.txt", b"good\n\nb\xe4d\n\ngood")
    assert rows(damaged, "paragraph") == [(1, {"text": "good"}), (3, BAD), (5, {"text": "good"})]


@pytest.mark.parametrize("documents", ["line", "paragraph"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(lines=LINES, size=st.integers(2, 30))
def test_pieces_make_up_the_file(tmp_path: Path, documents: str, lines: list[bytes], size: int) -> None:
    path = written(tmp_path / "x.txt", b"\n".join(lines))
    whole = rows(path, documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE_BYTES", size)
        assert rows(path, documents) == whole


def test_a_table_keeps_its_lines_and_tells_bad_ones(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", b'text,n\n"a\nb",1\nx\n1,2,3\n\n\xff,3\nlast,4\n')
    assert rows(path) == [
        (3, {"text": "a\nb", "n": "1"}),
        (4, BAD),
        (5, BAD),
        (7, BAD),
        (8, {"text": "last", "n": "4"}),
    ]
    text = "".join(f"Dear all,\nline {number}\n" for number in range(20))
    assert rows(written(path, f'text,label\n"{text}",1\n')) == [(42, {"text": text, "label": "1"})]


@pytest.mark.parametrize("end", ["", 'a "word"\n'])
def test_rows_after_a_quote_that_is_not_closed_are_bad(tmp_path: Path, end: str) -> None:
    found = rows(written(tmp_path / "x.csv", "text\n" + "good\n" * 300 + '"oops\n' + "good\n" * 100 + end))
    assert [row for row, value in found if value == BAD] == list(range(302, 403 + bool(end)))
    between = written(tmp_path / "y.csv", "a,b\n" + '"oops,1\n' + "good,0\n" * 20 + 'oops",1\n' + "good,0\n")
    assert [row for row, value in rows(between) if value != BAD] == [24]


@pytest.mark.parametrize(
    ("name", "header", "mark"),
    [("x.csv", "text,label", ","), ("x.csv", "text;label", ";"), ("x.csv", "text\tlabel", "\t"),
     ("x.csv", '"a;b;c",label', ","), ("x.csv", "text", ","), ("x.tsv", "text\ta,b,c", "\t"), ("x.csv", "a|b", "|")],
)  # fmt: skip
def test_the_header_shows_the_separator(tmp_path: Path, name: str, header: str, mark: str) -> None:
    path = written(tmp_path / name, f"{header}\n{header}\n")
    (piece,) = FORMATS[path.suffix].pieces(path, "line")
    ((row, record),) = rows(path)
    assert delimiter_of(piece) == mark and row == 2 and list(record) == list(record.values())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.csv", b"text,label,text\na,b,c\n", ["'text'", "twice"]),
        ("x.csv", "Käse,n\na,1\n".encode("latin-1"), ["header", "byte 1", "encoding=latin-1"]),
        ("x.txt", b"\xff\xfea\x00b", ["UTF-16", "byte 4"]),
        ("x.txt", b"", ["no records"]),
        ("x.txt", b"caf\xe9", ["row 1", "byte 3", "encoding=latin-1"]),
        ("x.json", b"[]", ["no records"]),
        ("x.json", b"[1]", ["row 1"]),
        ("x.json", b"[{", ["JSON"]),
        ("x.json", b'{"data": [], "n": 1}', ["data, n"]),
        ("x.json", b'{"images": [{"id": 1}], "annotations": [], "categories": []}', ["file_name"]),
        ("x.parquet", b"PAR1", ["parquet", "again"]),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, name: str, content: bytes, said: list[str]) -> None:
    with raises_sentence(name, *said):
        read(str(written(tmp_path / name, content)))


@pytest.mark.parametrize(
    ("encoding", "text", "guess"),
    [("latin-1", "Käse", "latin-1"), ("cp1252", "„Käse“", "cp1252"), ("shift_jis", "日本語", "cp1252")],
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".txt"])
def test_encodings(tmp_path: Path, encoding: str, text: str, guess: str, suffix: str) -> None:
    record = f'{{"text": "{text}"}}'
    content = {".csv": f"text,n\n{text},1\n", ".jsonl": record, ".json": f"[{record}]", ".txt": text}[suffix]
    path = written(tmp_path / f"x{suffix}", content.encode(encoding))
    assert read(str(path), encoding=encoding)["text"][:] == [text]
    with raises_sentence("row", "byte", f"encoding={guess}"):
        read(str(path))
    for mark in ("utf-8-sig", "utf-16", "utf-32"):
        assert read(str(written(path, content.encode(mark))))["text"][:] == [text]
    with raises_sentence("encoding='latin1x'", "utf-8"):
        read(str(path), encoding="latin1x")


@pytest.mark.parametrize("content", ['[{"a": 1}, {"a": 2}]', '{"a": 1}\n{"a": 2}\n', '\ufeff[{"a": 1},{"a":2}]'])
def test_lists_and_lines_of_json_are_one(tmp_path: Path, content: str) -> None:
    assert read(str(written(tmp_path / "x.json", content)))["a"][:] == [1, 2]


@pytest.mark.parametrize("folder", ["", "images", "../images", "../train2017", "train2017"])
def test_images_of_coco_are_found(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "annotations" / "instances_train2017.json"
    (path.parent / folder).mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    boxes = [{"image_id": 7, "category_id": 2, "bbox": [0, 0, 2, 2], "iscrowd": crowd} for crowd in (0, 1)]
    images = [{"id": 7, "file_name": "ü 1.png"}, {"id": 3, "file_name": "2.png"}]
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 2, "name": "cat"}]}))
    Image.new("RGB", (4, 4)).save(path.parent / folder / "ü 1.png")
    one, other = read(str(path))
    assert Path(one["image"]["path"]).samefile(path.parent / folder / "ü 1.png")
    assert json.loads(one["objects"]) == [{"bbox": [0, 0, 2, 2], "category": "cat"}] and other["objects"] == "[]"


def test_a_damaged_row_group_costs_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": list(range(30))}), path, row_group_size=10, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    found = rows(written(path, bytes(data)))
    assert [row for row, _ in found] == list(range(1, 31)) and found[10][1] == BAD
    assert [value["n"] for _, value in found if value != BAD] == [*range(10), *range(20, 30)]
    texts = pa.array([b"a", b"\xff", b"c"]).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": texts}), path)
    assert [row for row, value in rows(path) if value == BAD][0] <= 2


def test_columns_hold_values_of_any_type(tmp_path: Path) -> None:
    lines = [{"a": 1, "b": [1], "c": True, "d": 1, "e": 2**63}, {"a": 0.5, "b": {"x": "y"}, "c": None, "d": "z", "e": 1},
             {"a": 2}, {"d": "\ud800"}]  # fmt: skip
    table = read(str(written(tmp_path / "x.jsonl", "\n".join(map(json.dumps, lines)))))
    assert (
        table["a"][:3] == [1.0, 0.5, 2.0] and table["b"][:2] == ["[1]", '{"x": "y"}'] and table["c"][:2] == [True, None]
    )
    assert table["d"][:2] == ["1", "z"] and table["e"][:2] == [str(2**63), "1"]
    assert table["_invalid"][:3] == [None] * 3 and "surrogate" in table["_invalid"][3]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"\x89PNG\r\n", "image"), (b"RIFF....WEBPVP8", "image"), (b"RIFF....WAVEfmt", "audio"), (b"ID3", "audio"),
     (b"RIFF", None), (b"", None), (None, None)],
)  # fmt: skip
def test_the_kind_of_a_stored_file(value: bytes | None, kind: str | None) -> None:
    assert stored_media_of({"bytes": value, "path": None}) == kind and stored_media_of(value) is None
