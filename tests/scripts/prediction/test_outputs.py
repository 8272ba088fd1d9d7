"""Tables that are written: every form gives the rows back."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qkv.scripts.prediction.inputs import read_table
from qkv.scripts.prediction.outputs import WRITERS, cell, check_out, shortened, show, write_table

COLUMNS = ["naïve", "prediction", "score"]
ROWS = [
    {"naïve": 'a, "b"\nc\t😀', "prediction": "007", "score": 0.25},
    {"naïve": "", "prediction": ["x", {"y": 1}], "score": None},
]


@pytest.mark.parametrize("suffix", WRITERS)
def test_what_is_written_is_read_again(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"tablé{suffix}"
    write_table(path, COLUMNS, ROWS)
    table = read_table(path, {})
    assert table.columns == COLUMNS and table.reasons == [None, None]
    assert [row["naïve"] for row in table.rows] == [row["naïve"] for row in ROWS]
    assert table.rows[0]["prediction"] == "007" and float(table.rows[0]["score"]) == 0.25
    listed = table.rows[1]["prediction"]
    assert (json.loads(listed) if isinstance(listed, str) else listed) == ["x", {"y": 1}]
    assert not list(tmp_path.glob("*.partial"))


def test_columns_of_parquet_keep_their_types(tmp_path: Path) -> None:
    first = pa.table({"day": pa.array([1, 2], pa.date32()), "n": pa.array([1, 2], pa.int8())})
    pq.write_table(first, tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", {})
    rows = [row | {"prediction": "x"} for row in table.rows]
    write_table(tmp_path / "b.parquet", ["day", "n", "prediction"], rows, tmp_path / "a.parquet")
    second = pq.read_table(tmp_path / "b.parquet")
    assert second.select(["day", "n"]).equals(first) and second["prediction"].to_pylist() == ["x", "x"]
    write_table(tmp_path / "c.csv", ["day"], rows)
    assert (tmp_path / "c.csv").read_text() == 'day\n"""1970-01-02"""\n"""1970-01-03"""\n'


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xlsx", "is no table that is written; its name must end in .csv, .tsv"),
        ("no/a.csv", "there is no folder"),
        ("here.csv", "is the input itself"),
    ],
)
def test_an_out_that_cannot_be_written(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("a\n")
    with pytest.raises(ValueError, match=message):
        check_out(tmp_path / name, str(tmp_path / "here.csv"))


def test_a_pipe_gets_all_rows_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    show(COLUMNS, ROWS * 30, hint="")
    assert len(list(csv.reader(capsys.readouterr().out.splitlines(keepends=True)))) == 61


def test_a_terminal_gets_the_first_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show(["a"], [{"a": f"[MASK]{number}"} for number in range(30)], hint="more in --out")
    printed = capsys.readouterr().out
    show(["a"], [{"a": "GA", "prediction": [{"i": 7, "j": 42}, {"i": 8, "j": 41}]}], hint="")
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1::2] for row in rows if "4" in row] == [["7", "42"], ["8", "41"]]
    assert "[MASK]19" in printed and "[MASK]20" not in printed and "10 more rows; more in --out" in printed


def test_cells() -> None:
    assert [cell(value) for value in (None, "a", 1.0, 1 / 3, True)] == ["", "a", "1", "0.333333", "true"]
    assert [cell({"bytes": b"1", "path": path}) for path in (None, "a.png")] == ["", "a.png"]
    assert shortened("x" * 300) == "x" * 200 + "…"
