"""Tables that are written: every form gives the rows back, a person's numbers to the last digit."""

import json
from pathlib import Path

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
    write_table(path, COLUMNS, ROWS)
    table = read_table(path, {})
    assert table.columns == COLUMNS and table.reasons == [None, None]
    assert [row["naïve"] for row in table.rows] == [row["naïve"] for row in ROWS]
    assert table.rows[0]["prediction"] == "007" and float(table.rows[0]["score"]) == 0.25
    listed = table.rows[1]["prediction"]
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
        write_table(path, ["x"], [{"x": value} for value in values])
        back = [row["x"] for row in read_table(path, {}).rows]
        kinds = list(map(type, values))
        assert [kind(value) for kind, value in zip(kinds, back, strict=True)] == values


def test_columns_of_parquet_keep_their_types(tmp_path: Path) -> None:
    first = pa.table({"day": pa.array([1, 2], pa.date32()), "n": pa.array([1, 2], pa.int8())})
    pq.write_table(first, tmp_path / "a.parquet")
    rows = [row | {"prediction": "x"} for row in read_table(tmp_path / "a.parquet", {}).rows]
    write_table(tmp_path / "b.parquet", ["day", "n", "prediction"], rows, tmp_path / "a.parquet")
    second = pq.read_table(tmp_path / "b.parquet")
    assert second.select(["day", "n"]).equals(first) and second["prediction"].to_pylist() == ["x", "x"]
    rows[0]["file"] = {"bytes": b"1", "path": "a.png"}
    write_table(tmp_path / "c.jsonl", ["day", "file"], rows)
    write_table(tmp_path / "c.csv", ["day", "file"], rows)
    assert [row["day"] for row in read_table(tmp_path / "c.jsonl", {}).rows] == ["1970-01-02", "1970-01-03"]
    assert [row["file"] for row in read_table(tmp_path / "c.csv", {}).rows] == ["a.png", ""]


@pytest.mark.parametrize("name", ["a.xlsx", "no/a.csv", "here.csv", "folder.csv"])
def test_out_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("a\n")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="--out"):
        check_out(tmp_path / name, str(tmp_path / "here.csv"))
