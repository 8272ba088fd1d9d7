"""Tables of architectures: names of one entry only, parts that exist, and nothing in Python that no table names."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qkv import QkvDecoderConfig
from qkv.modeling.conversion import decoder, decoder_experts, encoder, encoder_decoder, image_models
from qkv.modeling.conversion.config import Codec, Head
from qkv.modeling.conversion.tables import read_architectures

ENTRY = """
shared:
  both: &both {family: QkvDecoderConfig, words: {}, rows: llama experts@part}
group:
  first: &first
    <<: *both
    fields: {ours: theirs, both.side: "*_side", window: !CODEC , size: !codec_of [name], width: !codec_of {name: other}}
    heads: [HEAD SEVERAL, {like: HEAD, ours: ForY, rows: score}]
    inert: &unread one two
  second: {<<: *first, model_type: first, inert: [three, *unread]}
"""
NAMES = {"CODEC": Codec("window"), "codec_of": Codec, "HEAD": Head("Model"), "SEVERAL": (Head("ForX"),)}


def test_entries_share_parts_and_name_codecs_heads_and_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(ENTRY)
    (first, second) = read_architectures(path, NAMES)["group"].values()
    assert (first.model_type, second.model_type, first.family) == ("first", "first", QkvDecoderConfig)
    assert (first.fields.pop("encoder.side"), first.fields.pop("decoder.side")) == ("encoder_side", "decoder_side")
    assert first.fields == {"ours": "theirs", "window": Codec("window"), "size": Codec("name"), "width": Codec("other")}
    assert [head.ours for head in first.heads] == ["Model", "ForX", "ForY"] and second.heads == first.heads
    assert (first.inert, second.inert) == ("one two", "three one two")
    assert first.heads[-1].rows == (("score", "score"),)
    assert [row[0] for row in first.rows[-2:]] == [
        "part.layers.*.mlp.gate",
        "part.layers.*.mlp.experts.{gate_up_proj,down_proj}",
    ]
    path.write_text(ENTRY.replace("!CODEC", "!UNKNOWN"))
    with pytest.raises(KeyError, match="UNKNOWN"):
        read_architectures(path, NAMES)


def test_halves_are_joined_with_the_rest_and_files_share_anchors(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(ENTRY + "  whole: {<<: *first, fields: *stack_fields, halves: [*first, *first]}\n")
    joined = {"dual": lambda rest, *halves: replace(rest, words={"halves": halves})}
    first, _, whole = read_architectures(path, NAMES | joined)["group"].values()
    assert (whole.model_type, whole.fields["norm_eps"]) == ("whole", "layer_norm_eps")
    assert whole.words["halves"] == (replace(first, model_type=""),) * 2


@pytest.mark.parametrize("module", [decoder, decoder_experts, encoder, encoder_decoder, image_models])
def test_no_entry_hides_another(module: Any) -> None:
    text = Path(module.__file__).with_suffix(".yaml").read_text()
    _, *parts = re.split(r"^\w+:$", text, flags=re.MULTILINE)
    entries = [entry for part in parts[1:] for entry in re.findall(r"^  ([\w-]+):", part, re.MULTILINE)]
    assert sorted(entries) == sorted(entry for group in module.GROUPS.values() for entry in group)
