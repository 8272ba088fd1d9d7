"""The figure of probes has a panel for each, in which the numbers of the table stand."""

from typing import Any

import numpy as np
import pytest

import qkv
import tiny
from qkv.scripts.probes.table import ProbeTable


@pytest.fixture(scope="module")
def table() -> ProbeTable:
    model = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    return qkv.inspect(model, tiny.translations())


def panels(table: ProbeTable) -> dict[str, Any]:
    return {axis.get_title(): axis for axis in table.figure().axes if axis.get_title()}


def test_heads_are_a_map_of_each_stack(table: ProbeTable) -> None:
    for stack in ("encoder", "decoder", "cross"):
        axis = panels(table)[f"entropy (nats), {stack}"]
        values = axis.images[0].get_array()
        for row in table.select("entropy", stack):
            assert values[row["layer"], row["head"]] == row["value"]
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("head", "layer")


def test_layers_are_a_line_for_each_stack(table: ProbeTable) -> None:
    for title, probe in (("norm of activations", "norm"), ("logit lens: rank of the target", "lens_rank")):
        axis = panels(table)[title]
        for line in axis.lines:
            rows = table.select(probe, line.get_label())
            assert list(line.get_ydata()) == [row["value"] for row in rows]
            assert list(line.get_xdata()) == [row["layer"] for row in rows]


def test_positions_are_a_line_and_a_matrix(table: ProbeTable) -> None:
    axis = panels(table)["similarity of positions, encoder"]
    assert list(axis.lines[0].get_ydata()) == [row["value"] for row in table.select("position_similarity", "encoder")]
    matrix = panels(table)["cosine similarity of positions, decoder"].images[0].get_array()
    assert np.array_equal(matrix, table.similarity["decoder"].numpy())


def test_a_table_without_rows_has_an_empty_figure() -> None:
    assert not panels(ProbeTable("nothing"))


def test_every_probe_has_a_title_of_its_own(table: ProbeTable) -> None:
    bias = qkv.inspect(qkv.QkvDecoderForCausalLM(tiny.decoder("bloom")))
    for each in (table, bias):
        titles = panels(each)
        assert len(titles) == len(set(titles)) and not any("_" in title for title in titles)
        assert len([axis for axis in each.figure().axes if axis.get_title()]) == len(titles)
