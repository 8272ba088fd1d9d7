"""Readers: every row with its number as it stands in the file, whatever is wrong with another."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.columns import media_of
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.formats.readers import read_rows
from qkv.scripts.data.loading import read

BAD = "bad"


def rows(path: Path, documents: str = "line") -> list[tuple[int, Any]]:
    """(row in the file, its values or that it is bad)."""
    return [(row, BAD if isinstance(value, InvalidRecord) else value) for row, value in read_rows(path, documents)]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_bad_line_is_told_from_its_neighbours(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\n\n{"a": "\xff"}\n{"a":\n[1]\n' + b"[" * 99999 + b'\n{"a": 2}'
    expected = [(1, {"a": 1}), (3, BAD), (4, BAD), (5, BAD), (6, BAD), (7, {"a": 2})]
    assert rows(written(tmp_path / "x.jsonl", content)) == expected


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


def test_a_table_keeps_its_lines_and_tells_bad_ones(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", b'text,n\n"a\nb",1\nx\n1,2,3\n\n\xff,3\nlast,4\n')
    alone = written(tmp_path / "y.csv", 'text\n""\n\na\n')
    assert rows(alone) == [(2, {"text": ""}), (4, {"text": "a"})]
    good = [(3, {"text": "a\nb", "n": "1"}), (4, BAD), (5, BAD), (7, BAD), (8, {"text": "last", "n": "4"})]
    assert rows(path) == good
    text = "".join(f"Dear all,\nline {number}\n" for number in range(20))
    assert rows(written(path, f'text,label\n"{text}",1\n')) == [(42, {"text": text, "label": "1"})]


@pytest.mark.parametrize(
    ("name", "content"), [("x.tsv", "text\ta,b,c\none\ttwo\n"), ("x.csv", 'text,"a,b,c"\none,two')]
)
def test_the_header_shows_the_separator(tmp_path: Path, name: str, content: str) -> None:
    assert rows(written(tmp_path / name, content)) == [(2, {"text": "one", "a,b,c": "two"})]
    assert rows(written(tmp_path / "y.csv", '"a;b;c",text\none,two\n')) == [(2, {"a;b;c": "one", "text": "two"})]
    assert rows(written(tmp_path / "Y.TSV", "text\none,two\n")) == [(2, {"text": "one,two"})]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.csv", b"text,label,text\na,b,c\n", ["'text'", "twice"]),
        ("x.csv", "Käse,n\na,1\n".encode("latin-1"), ["letter 2", "encoding="]),
        ("x.csv", b'text\ngood\n"oops\ngood\n', ["row 4", "quotes"]),
        ("x.txt", b"\xff\xfea\x00b", ["utf-16", "encoding="]),
        ("x.txt", b"", ["no records"]),
        ("x.txt", b"caf\xe9", ["row 1", "letter 4", "encoding=cp1252"]),
        ("x.json", b"[]", ["no records"]),
        ("x.json", b"[1]", ["row 1"]),
        ("x.json", b"[{", ["JSON"]),
        ("x.json", b'{"data": [], "n": 1}', ["data, n"]),
        ("x.json", b'{"images": [{"id": 1}], "annotations": [], "categories": []}', ["file_name"]),
        ("x.parquet", b"PAR1", ["x.parquet", "again"]),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, name: str, content: bytes, said: list[str]) -> None:
    with raises_sentence(name, *said):
        read(str(written(tmp_path / name, content)))


@pytest.mark.parametrize(("encoding", "text"), [("latin-1", "Käse"), ("cp1252", "„Käse“"), ("shift_jis", "日本語")])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".txt"])
def test_encodings(tmp_path: Path, encoding: str, text: str, suffix: str) -> None:
    record = f'{{"text": "{text}"}}'
    content = {".csv": f"text,n\n{text},1\n", ".jsonl": record, ".json": f"[{record}]", ".txt": text}[suffix]
    path = written(tmp_path / f"x{suffix}", content.encode(encoding))
    assert [value["text"] for _, value in read_rows(path, encoding=encoding)] == [text]
    with raises_sentence("letter"):
        read(str(path))
    for mark in ("utf-8-sig", "utf-16", "utf-32"):
        assert [value["text"] for _, value in read_rows(written(path, content.encode(mark)))] == [text]
    with raises_sentence("latin1x", "utf-8"):
        read(str(written(path, content)), encoding="latin1x")


@pytest.mark.parametrize(
    "content",
    [
        '[{"a": 1}, {"a": 2}]',
        '{"a": 1}\n{"a": 2}\n',
        '\ufeff[{"a": 1},{"a":2}]',
        '{"n": 2, "data": [{"a": 1}, {"a": 2}]}',
    ],
)
def test_lists_and_lines_of_json_are_one(tmp_path: Path, content: str) -> None:
    assert rows(written(tmp_path / "x.json", content)) == [(1, {"a": 1}), (2, {"a": 2})]


@pytest.mark.parametrize("folder", ["", "images", "../images", "../train2017", "train2017"])
def test_images_of_coco_are_found(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "annotations" / "instances_train2017.json"
    (path.parent / folder).mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    boxes = [{"image_id": 7, "category_id": 2, "bbox": [0, 0, 2, 2], "iscrowd": crowd} for crowd in (0, 1)]
    images = [{"id": 7, "file_name": "ü 1.png"}, {"id": 3, "file_name": "2.png"}]
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 2, "name": "cat"}]}))
    Image.new("RGB", (4, 4)).save(path.parent / folder / "ü 1.png")
    (_, one), (_, other) = rows(path)
    assert Path(one["image"]).samefile(path.parent / folder / "ü 1.png")
    assert one["objects"] == [{"bbox": [0, 0, 2, 2], "category": "cat"} | own for own in ({}, {"iscrowd": 1})]
    assert other["objects"] == []


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": list(range(30))}), path, row_group_size=10, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    with raises_sentence("x.parquet", "again"):
        read(str(written(path, bytes(data))))
    texts = pa.array([b"a", b"\xff", b"c"]).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": texts}), path)
    with raises_sentence("x.parquet", "again"):
        read(str(path))


def test_columns_hold_values_of_any_type(tmp_path: Path) -> None:
    lines = [{"a": 1, "b": [1], "c": True, "d": 1, "e": 2**63}, {"a": 0.5, "b": {"x": "y"}, "c": None, "d": "z", "e": 1},
             {"a": 2}, {"d": "\ud800"}]  # fmt: skip
    table = read(str(written(tmp_path / "x.jsonl", "\n".join(map(json.dumps, lines)))))
    assert table["a"][:3] == [1.0, 0.5, 2.0] and table["c"][:2] == [True, None]
    assert table["b"][:2] == ["[1]", '{"x": "y"}'] and table["d"][:2] == ["1", "z"]
    assert table["e"][:2] == [str(2**63), "1"]
    assert table["_invalid"][:3] == [None] * 3 and table["_invalid"][3]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"\x89PNG\r\n", "image"), (b"RIFF....WEBPVP8", "image"), (b"RIFF....WAVEfmt", "audio"), (b"ID3", "audio"),
     (b"", None), (None, None)],
)  # fmt: skip
def test_the_kind_of_a_stored_file(value: bytes | None, kind: str | None) -> None:
    assert media_of({"bytes": value, "path": None}) == kind and media_of(value) is None
