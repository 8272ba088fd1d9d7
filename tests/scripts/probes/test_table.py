"""The table of probes: rows with the same columns, a figure, a file of it, and what a notebook shows."""

import base64
import re
from pathlib import Path

import pytest

import qkv
import tiny
from errors import raises_sentence
from qkv.scripts.probes.table import COLUMNS, ProbeTable


@pytest.fixture(scope="module")
def table() -> ProbeTable:
    return qkv.inspect(qkv.QkvDecoderForCausalLM(tiny.decoder()), tiny.causal_labels())


def test_a_data_frame_takes_the_rows(table: ProbeTable) -> None:
    frame = pytest.importorskip("pandas").DataFrame(table.rows)
    assert tuple(frame.columns) == COLUMNS and frame["value"].notna().all()
    entropy = frame[frame.probe == "entropy"].pivot(index="layer", columns="head", values="value")
    assert entropy.shape == (2, 4)


def test_rows_of_a_probe(table: ProbeTable) -> None:
    rows = table.select("norm", "decoder")
    assert [(row["layer"], row["head"], row["distance"]) for row in rows] == [(0, None, None), (1, None, None)]
    with raises_sentence("probe='entrpy'", "entropy"):
        table.select("entrpy")
    with raises_sentence("stack='encoder'", "decoder"):
        table.select("entropy", "encoder")


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")])
def test_a_file_of_the_figure(table: ProbeTable, tmp_path: Path, name: str, start: bytes) -> None:
    table.save(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_other_files_are_refused(table: ProbeTable, tmp_path: Path) -> None:
    with raises_sentence(".svg", ".png", ".pdf"):
        table.save(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_the_figure(table: ProbeTable) -> None:
    match = re.search(r'src="data:image/png;base64,([^"]+)"', table._repr_html_())
    assert (
        match and base64.b64decode(match[1]).startswith(b"\x89PNG") and "QkvDecoderForCausalLM" in table._repr_html_()
    )
