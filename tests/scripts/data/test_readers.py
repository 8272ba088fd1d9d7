"""Thin readers: every row with its number, whatever is wrong with another; pieces of a file make up the file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkv.scripts.data import pieces as cutting
from qkv.scripts.data.pieces import InvalidRecord, Piece, lines_before
from qkv.scripts.data.readers import FORMATS, format_of

MEND = "; save the file as UTF-8, or give encoding=latin-1"
LINES = st.lists(st.sampled_from([b"", b"a", b'{"n": 1}', b"some more words", b"  "]), max_size=20)


def pieces(path: Path, documents: str = "line") -> list[Piece]:
    return FORMATS[path.suffix].pieces(path, documents)


def rows(path: Path, documents: str = "line") -> list[tuple[int, object]]:
    """(row in the file, values or what is wrong)."""
    return [
        (lines_before(piece.path, piece.begin) + row, str(found) if isinstance(found, InvalidRecord) else found)
        for piece in pieces(path, documents)
        for row, found in format_of(piece).rows(piece)
    ]


def test_a_bad_line_is_told_from_its_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": "\xff"}\n{"a":\n[1]\n' + b"[" * 99999 + b'\n{"a": 2}')
    assert rows(path) == [
        (1, {"a": 1}),
        (3, f"not UTF-8 from its byte 7 on{MEND}"),
        (4, "not JSON: Expecting value"),
        (5, "a JSON list, not an object"),
        (6, "not JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string"),
        (7, {"a": 2}),
    ]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("line", [(1, "a"), (2, "b"), (5, "c"), (7, "d")]),
        ("paragraph", [(1, "a\nb"), (5, "c"), (7, "d")]),
        ("file", [(1, "a\nb\n\n \nc\n\nd")]),
    ],
)
def test_a_document_of_text_is_what_the_recipe_says(tmp_path: Path, documents: str, expected: list) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n\n \nc\n\nd\n")
    assert rows(path, documents) == [(row, {"text": text}) for row, text in expected]


def test_text_that_is_not_utf_8_is_one_bad_document(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\n\nb\xe4d\n\ngood")
    assert rows(path, "paragraph") == [
        (1, {"text": "good"}),
        (3, f"not UTF-8 from its byte 1 on{MEND}"),
        (5, {"text": "good"}),
    ]


@pytest.mark.parametrize("documents", ["line", "paragraph"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(lines=LINES, size=st.integers(1, 30))
def test_pieces_make_up_the_file(tmp_path: Path, documents: str, lines: list[bytes], size: int) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\n".join(lines))
    lines_before.cache_clear()
    whole = rows(path, documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE_BYTES", size)
        cut = pieces(path, documents)
        assert [piece.begin for piece in cut[1:]] == [piece.end for piece in cut[:-1]]
        assert rows(path, documents) == whole


def test_a_table_keeps_its_lines_and_tells_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'text,n\n"a\nb",1\nx\n1,2,3\n\xff,3\nlast,4\n')
    wrong = "more or fewer fields than the header"
    assert rows(path) == [
        (3, {"text": "a\nb", "n": "1"}),
        (4, wrong),
        (5, wrong),
        (6, f"not UTF-8 from its byte 0 on{MEND}"),
        (7, {"text": "last", "n": "4"}),
    ]


def test_a_damaged_row_group_costs_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": list(range(30))}), path, row_group_size=10, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    path.write_bytes(data)
    found = rows(path)
    assert [row for row, _ in found] == list(range(1, 31))
    assert [value["n"] for _, value in found if isinstance(value, dict)] == [*range(10), *range(20, 30)]
    assert found[10][1].startswith("damaged parquet: ")


def test_a_parquet_file_without_its_end_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"x\.parquet is no whole parquet file \(.*\); make or fetch it again"):
        pieces(path)


def test_a_changed_file_is_another_piece(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n')
    before = pieces(path)
    path.write_text('{"a": 12}\n')
    assert pieces(path) != before


def test_text_of_parquet_that_is_not_utf_8_is_an_invalid_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    texts = pa.array([b"a", b"\xff", b"c"]).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": texts, "label": [0, 1, 2]}), path)
    found = rows(path)
    assert [found[0], found[2]] == [(1, {"text": "a", "label": 0}), (3, {"text": "c", "label": 2})]
    assert found[1] == (2, "text that is not UTF-8 from its byte 0 on; write the file again")
