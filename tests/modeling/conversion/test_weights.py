"""Each change between two layouts is undone by reading it the other way."""

import re

import pytest
import torch
from torch import Tensor

from checkout import ROOT
from qkv import QkvDecoderConfig
from qkv.modeling.conversion.weights import CHANGES, convert, expanded
from qkv.modeling.conversion.weights import ROWS as TABLES

ROWS = (
    ("layers.*.{q,k,v}", "h.*.qkv", "transpose", "split"),
    ("layers.*.o", "h.*.out", "transpose"),
    ("heads.{q,k,v}", "heads.qkv", "groups num_attention_heads 2 2 2"),
    ("grouped.{q,k,v}", "grouped.qkv", "groups 4 2 2 2"),
    ("turned.{q,k}", "pairs.{q,k}", "interleave 4 2"),
    ("**.norm", "**.ln"),
    ("mlp.{gate,up}", "mlp.{wi_0,wi_1}", "together"),
    ("mlp.up", "mlp.wi"),
    ("table", "{first,shared}", "tie"),
    ("bias", "buffer", "lead", "optional"),
    ("token", "mask", "widen"),
    ("", "positions", "sinusoids"),
    ("", "pooler.bias", "unread"),
)


TABLE = expanded(ROWS)
CONFIG = QkvDecoderConfig(hidden_size=4, num_attention_heads=2)


def sinusoids(rows: int, width: int) -> Tensor:
    angles = torch.arange(rows)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.cat((angles.sin(), angles.cos()), -1)


def theirs() -> dict[str, Tensor]:
    table = torch.randn(7, 4)
    return {
        **{
            f"h.{layer}.{name}.weight": torch.randn(4, size)
            for layer in (0, 1)
            for name, size in (("qkv", 12), ("out", 4))
        },
        **{f"h.{layer}.qkv.bias": torch.randn(12) for layer in (0, 1)},
        **{"heads.qkv.weight": torch.randn(12, 4), "heads.qkv.bias": torch.randn(12)},
        **{"grouped.qkv.weight": torch.randn(24, 4), "grouped.qkv.bias": torch.randn(24)},
        **{f"pairs.{name}.weight": torch.randn(size, 4) for name, size in (("q", 8), ("k", 4))},
        **{f"{side}.ln.{kind}": torch.randn(4) for side in ("encoder", "decoder") for kind in ("weight", "bias")},
        **{f"mlp.wi_{number}.weight": torch.randn(4, 4) for number in (0, 1)},
        "first.weight": table,
        "shared.weight": table,
        "buffer": torch.randn(1, 7),
        "mask": torch.randn(1, 4),
        "positions": sinusoids(9, 4),
        "pooler.bias": torch.randn(4),
    }


def test_there_and_back_is_the_identity() -> None:
    original = theirs()
    back = convert(TABLE, convert(TABLE, original, CONFIG, reading=True), CONFIG, reading=False)
    assert back.keys() | {"positions", "pooler.bias"} == original.keys()  # what is computed or unread is not stored
    assert all(torch.equal(tensor, original[name]) for name, tensor in back.items())


def test_a_fused_projection_is_split_by_part_or_head_by_head() -> None:
    original = theirs()
    ours = convert(TABLE, original, CONFIG, reading=True)
    assert torch.equal(ours["encoder.norm.bias"], original["encoder.ln.bias"])
    for layer in (0, 1):
        fused, heads = original[f"h.{layer}.qkv.weight"].T.split(4), original["heads.qkv.weight"].view(2, 3, 2, 4)
        for index, name in enumerate("qkv"):
            assert torch.equal(ours[f"layers.{layer}.{name}.weight"], fused[index])
            assert torch.equal(ours[f"heads.{name}.weight"], torch.cat((heads[0, index], heads[1, index])))
            assert ours[f"layers.{layer}.{name}.bias"].shape == ours[f"heads.{name}.bias"].shape == (4,)


def test_a_fused_projection_is_split_by_groups_of_heads() -> None:
    """Heads of three components: each group has two query heads, a key head and a value head."""
    original = theirs()
    ours, fused = convert(TABLE, original, CONFIG, reading=True), original["grouped.qkv.bias"].view(2, 4, 3)
    for name, heads in (("q", slice(0, 2)), ("k", slice(2, 3)), ("v", slice(3, 4))):
        assert torch.equal(ours[f"grouped.{name}.bias"], torch.cat([group[heads].flatten() for group in fused]))


def test_pairs_beside_each_other_become_halves() -> None:
    """Of each head of six components the first four are rotated."""
    table = expanded([("{q,k}", "{q,k}", "interleave 6 4")])
    weights = {"q.weight": torch.arange(12)[:, None], "k.weight": torch.arange(6)[:, None]}
    ours = convert(table, weights, reading=True)
    assert ours["q.weight"].flatten().tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]
    back = convert(table, ours, reading=False)
    assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())


def test_a_weight_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="weight 'adapter.weight' has no counterpart"):
        convert(TABLE, {**theirs(), "adapter.weight": torch.ones(2)}, CONFIG, reading=True)


def test_positions_that_were_trained_are_refused() -> None:
    with pytest.raises(ValueError, match="not the sinusoidal table"):
        convert(TABLE, {**theirs(), "positions": sinusoids(9, 4) + 0.1}, CONFIG, reading=True)
    assert convert(TABLE, {"positions": sinusoids(9, 4).bfloat16()}, reading=True) == {}


def test_every_table_is_used_and_its_rows_have_two_names_and_known_changes() -> None:
    folder = ROOT / "modeling" / "conversion"
    used = {name for path in folder.glob("*.py") for name in re.findall(r'ROWS\["(\w+)"\]', path.read_text())}
    named = " ".join(path.read_text() for path in folder.glob("*.yaml"))
    used |= {name for rows in re.findall(r"\brows: ([\w@ ]+)", named) for name in re.sub("@\\w+", "", rows).split()}
    # PyYAML keeps the last of two tables of one name.
    named = re.findall(r"^(\w+):", (ROOT / "modeling" / "conversion" / "weights.yaml").read_text(), re.MULTILINE)
    assert used == TABLES.keys() and len(named) == len(TABLES)
    rows = [row for table in TABLES.values() for row in table]
    changes = {change.split()[0] for row in rows for change in row[2:]}
    assert min(map(len, rows)) == 2 and changes <= CHANGES.keys()
