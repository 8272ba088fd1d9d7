"""Columns are what most of the first records say; a record that holds else is bad, and no other for its sake."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.scripts.data.column_types import infer_types, records, stored_media_of
from qkv.scripts.data.readers import FORMATS


def read(path: Path, lines: list[Any], columns: list[str] | None = None) -> tuple[dict[str, str], list[tuple]]:
    """What the columns hold, and of each record its values or fault."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pieces = FORMATS[path.suffix].pieces(path, "line")
    found = infer_types(pieces)
    chosen = {name: kind for name, kind in found.items() if columns is None or name in columns}
    rows = [
        (row["_row"], row["_invalid"] or {name: row[name] for name in chosen}) for row in records(pieces, chosen, {})
    ]
    return found, rows


def test_the_majority_decides(tmp_path: Path) -> None:
    lines = [{"a": 5, "b": True}, {"a": "x", "b": None}, {"a": "y", "b": False}, {"a": "z", "b": 1}]
    found, rows = read(tmp_path / "x.jsonl", lines)
    assert found == {"a": "string", "b": "bool"}
    assert rows == [
        (1, "'a' is int64, expected string"),
        (2, {"a": "x", "b": None}),
        (3, {"a": "y", "b": False}),
        (4, "'b' is int64, expected bool"),
    ]


def test_columns_that_are_not_wanted_cannot_be_wrong(tmp_path: Path) -> None:
    lines = [{"a": "x", "b": 1}, {"a": "y", "b": 1}, {"a": "z", "b": [1]}, {"b": 1}]
    _, rows = read(tmp_path / "x.jsonl", lines, ["a"])
    assert [row[1] for row in rows] == [{"a": "x"}, {"a": "y"}, {"a": "z"}, {"a": None}]


def test_whole_numbers_are_numbers_and_lists_are_json(tmp_path: Path) -> None:
    found, rows = read(tmp_path / "x.jsonl", [{"a": 1, "b": [1]}, {"a": 1, "b": {"c": "d"}}, {"a": 0.5, "b": None}])
    assert found == {"a": "float64", "b": "json"}
    assert [row[1] for row in rows] == [{"a": 1.0, "b": "[1]"}, {"a": 1.0, "b": '{"c": "d"}'}, {"a": 0.5, "b": None}]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("a", "\ud800", "a lone surrogate, which UTF-8 cannot encode"),
        (1, 2**63, "9223372036854775808 has more than 64 bits"),
        (1, True, "'a' is bool, expected int64"),
    ],
)
def test_what_no_table_can_hold_is_bad(tmp_path: Path, good: Any, bad: Any, said: str) -> None:
    _, rows = read(tmp_path / "x.jsonl", [{"a": good}, {"a": good}, {"a": bad}])
    assert rows[2] == (3, said)


def test_cells_are_numbers_where_most_are(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,n,empty\n1,1,\nx,2,\ny,z,\n")
    pieces = FORMATS[path.suffix].pieces(path, "line")
    found = infer_types(pieces)
    assert found == {"text": "string", "n": "int64", "empty": "string"}
    rows = [row["_invalid"] or (row["text"], row["n"]) for row in records(pieces, found, {})]
    assert rows == [("1", 1), ("x", 2), "'n' is string, expected int64"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no records; give"),
        (b"caf\xe9", "can be read; the first is row 1: not UTF-8 from its byte 3 on; .* encoding=latin-1"),
    ],
)
def test_files_of_which_nothing_can_be_read_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        infer_types(FORMATS[path.suffix].pieces(path, "line"))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\x89PNG\r\n", "image"), (b"RIFF....WEBPVP8", "image"), (b"RIFF....WAVEfmt", "audio"), (b"ID3", "audio"),
        (b"RIFF", None), (b"", None), (None, None),
    ],
)  # fmt: skip
def test_the_kind_of_a_stored_file(value: bytes | None, kind: str | None) -> None:
    assert stored_media_of({"bytes": value, "path": None}) == kind
    assert stored_media_of(value) is None
