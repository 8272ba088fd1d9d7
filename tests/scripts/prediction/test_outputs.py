"""Tables that are written: every form gives the rows back, a person's numbers to the last digit."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkv.scripts.prediction.inputs import read_table
from qkv.scripts.prediction.outputs import WRITERS, check_out, write_table

COLUMNS = ["naïve", "prediction", "score"]
ROWS = [
    {"naïve": 'a, "b"\nc\t😀', "prediction": "007", "score": 0.25},
    {"naïve": "", "prediction": ["x", {"y": 1}], "score": None},
]
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_form_gives_the_rows_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"tablé{suffix}"
    write_table(path, COLUMNS, lambda: ROWS)
    table = read_table(path, {})
    rows = list(table.rows())
    assert (table.columns, table.count) == (COLUMNS, 2)
    assert [row["naïve"] for row in rows] == [row["naïve"] for row in ROWS]
    assert rows[0]["prediction"] == "007" and float(rows[0]["score"]) == 0.25
    listed = rows[1]["prediction"]
    assert (json.loads(listed) if isinstance(listed, str) else listed) == ["x", {"y": 1}]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", WRITERS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=4))
def test_numbers_come_back_as_they_were(suffix: str, tmp_path: Path, numbers: list[float]) -> None:
    """Times, places and prices: 1699999999.123456, 48.85837012, 1049020."""
    mixed = len(set(map(type, numbers))) > 1
    for values in [[number] for number in numbers] if mixed and suffix == ".parquet" else [numbers]:
        path = tmp_path / f"numbers{suffix}"
        write_table(path, ["x"], lambda own=values: [{"x": value} for value in own])
        back = [row["x"] for row in read_table(path, {}).rows()]
        kinds = list(map(type, values))
        assert [kind(value) for kind, value in zip(kinds, back, strict=True)] == values


def test_columns_of_parquet_keep_their_types(tmp_path: Path) -> None:
    first = pa.table({"day": pa.array([1, 2], pa.date32()), "n": pa.array([1, 2], pa.int8())})
    pq.write_table(first, tmp_path / "a.parquet")
    rows = [row | {"prediction": "x"} for row in read_table(tmp_path / "a.parquet", {}).rows()]
    write_table(tmp_path / "b.parquet", ["day", "n", "prediction"], lambda: rows, tmp_path / "a.parquet")
    second = pq.read_table(tmp_path / "b.parquet")
    assert second.select(["day", "n"]).equals(first) and second["prediction"].to_pylist() == ["x", "x"]
    rows[0]["file"] = {"bytes": b"1", "path": "a.png"}
    write_table(tmp_path / "c.jsonl", ["day", "file"], lambda: rows)
    write_table(tmp_path / "c.csv", ["day", "file"], lambda: rows)
    assert [row["day"] for row in read_table(tmp_path / "c.jsonl", {}).rows()] == ["1970-01-02", "1970-01-03"]
    assert [row["file"] for row in read_table(tmp_path / "c.csv", {}).rows()] == ["a.png", ""]


COLUMNS_OF_MANY = {
    "floats": [None, None, 1, 2, 0.5, 3, 4],
    "whole": [1, 2, 3, 4, None, 6, 7],
    "digits": [0.5, 1.5, 2, 2**60 + 1, None, None, 1],
    "mixed": [1, 2, "a", None, {"b": 1}, [2], "c"],
    "nothing": [None] * 7,
    "lists": [[], [], [1], [None], [2.5], None, []],
    "objects": [{"a": 1}, None, {"a": 0.5, "b": ["x"]}, {}, {"b": []}, {"b": None}, {"a": 2}],
    "texts": ["007", None, None, "", "1e5", "null", "ä"],
}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_parquet_that_is_written_in_parts_has_the_columns_of_the_whole(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.scripts.prediction.outputs.ROWS", size)
    names = list(COLUMNS_OF_MANY)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*COLUMNS_OF_MANY.values(), strict=True)]
    del rows[-1]["whole"], rows[0]["nothing"]
    write_table(tmp_path / "a.parquet", names, lambda: rows)
    made = pq.read_table(tmp_path / "a.parquet")
    assert made.column_names == names and pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == -(-7 // size)
    whole = pa.table({name: [row.get(name) for row in rows] for name in names if name not in ("digits", "mixed")})
    assert made.select(whole.column_names).equals(whole)
    assert made["digits"].to_pylist() == ["0.5", "1.5", "2", "1152921504606846977", None, None, "1"]
    assert made["mixed"].to_pylist() == ["1", "2", "a", None, '{"b": 1}', "[2]", "c"]


def test_types_of_parquet_outlast_parts_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.scripts.prediction.outputs.ROWS", 2)
    first = pa.table({
        "ns": pa.array([1, None, 1_700_000_000_123_456_789], pa.timestamp("ns", "Europe/Berlin")),
        "time": pa.array([1, 2, None], pa.time32("ms")), "span": pa.array([1, 2, 3], pa.duration("s")),
        "price": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)),
        "half": pa.array([0.1, 0.2, None], pa.float32()), "big": pa.array([2**64 - 1, 1, 2], pa.uint64()),
        "kind": pa.array(["a", None, "a"]).dictionary_encode(), "long": pa.array(["a", "b", None], pa.large_string()),
        "bytes": pa.array([b"a", b"\xff", None]), "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int8())),
        "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)), "none": pa.nulls(3),
        "image": pa.array([{"bytes": b"1", "path": None}, None, {"bytes": None, "path": "a"}]),
    })  # fmt: skip
    pq.write_table(first, tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", {})
    write_table(tmp_path / "b.parquet", table.columns, table.rows, table.path)
    assert pq.read_table(tmp_path / "b.parquet").equals(pq.read_table(tmp_path / "a.parquet"))


def test_a_table_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"x": 1}
        raise KeyboardInterrupt

    for suffix in WRITERS:
        path = tmp_path / f"a{suffix}"
        path.write_text("old")
        with pytest.raises(KeyboardInterrupt):
            write_table(path, ["x"], rows)
        assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
        path.unlink()


@pytest.mark.parametrize("name", ["a.xlsx", "no/a.csv", "here.csv", "folder.csv"])
def test_out_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("a\n")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="--out"):
        check_out(tmp_path / name, str(tmp_path / "here.csv"))
