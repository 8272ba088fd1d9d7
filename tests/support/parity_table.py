"""Write model_cards/PARITY.md: how far every official class is from ours, measured here and now (some minutes).

`python tests/support/parity_table.py`; `test_parity_table.py` keeps the page and the rows equal.
"""

import platform
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import conftest  # noqa: F401  makes the checkout importable
    import every_test  # noqa: F401

import torch
import transformers
from test_parity import DOUBLE, SINGLE, assert_identical, distance, double
from test_parity_space import search

from families import FAMILIES, LEFT_OUT, ROWS
from families.base import Row
from qkv.modeling.conversion.convert import from_transformers, to_transformers

PAGE = Path(__file__).resolve().parents[2] / "model_cards" / "PARITY.md"
DRAWN = 30
HEAD = f"""# Parity with transformers

<!-- Written by `python tests/support/parity_table.py`; change that, never this file. -->

Each row takes a small model of the official class with random weights, every one of them moved off its initial value,
and the same inputs with and without padding. Differences are the largest over logits, loss, every hidden state, every
attention and pooled output, at real tokens. *In* compares the official model with `qkv.from_transformers` of it, *out*
compares our model with `qkv.to_transformers` of it, whose every tensor is bit-identical to the official one's.
Limits: {SINGLE:g} in single precision, {DOUBLE:g} in double precision (there both sides compute in double what
transformers otherwise rounds to single: norms, softmax, angles, losses).

transformers {{transformers}}, torch {{torch}}, {{machine}}.

| official class | config | qkv class | in, fp32 | in, fp64 | out, fp32 | out, fp64 |
| --- | --- | --- | --- | --- | --- | --- |
"""
SPACE = f"""
## Drawn configs

{DRAWN} configs of each architecture, drawn from all that its config may legally say, each with a head: the largest
difference of any. Every one of them went back bit-identical.

| architecture | fp32 | fp64 |
| --- | --- | --- |
"""
GAPS = """
## Classes that do not convert

| official class | why |
| --- | --- |
"""


def measure(row: Row) -> str:
    """One line of the table."""
    official = row.build()
    ours = from_transformers(official)
    back = to_transformers(ours, row.family.model_type)
    assert_identical(back, official)
    into, out = (max(distance(row, stock, ours, side) for side in row.sides) for stock in (official, back))
    with double():
        official = row.build()
        precise = from_transformers(official)
        stocks = (official, to_transformers(precise, row.family.model_type))
        into64, out64 = (max(distance(row, stock, precise, side) for side in row.sides) for stock in stocks)
    numbers = " | ".join(f"{value:.1e}" for value in (into, into64, out, out64))
    return f"| {row.class_name} | {row.name or 'plain'} | {type(ours).__name__} | {numbers} |\n"


def write() -> None:
    """Measure everything, then write the page."""
    torch.set_num_threads(1)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "machine": platform.machine()}
    page = HEAD.format(**versions) + "".join(measure(row) for row in ROWS) + SPACE
    for name, family in FAMILIES.items():
        single, precise = search(family, DRAWN)
        page += f"| {name} | {single:.1e} | {precise:.1e} |\n"
    page += GAPS + "".join(f"| {name} | {reason} |\n" for name, reason in sorted(LEFT_OUT.items()))
    PAGE.with_suffix(".partial").write_text(page, encoding="utf-8")
    PAGE.with_suffix(".partial").replace(PAGE)


if __name__ == "__main__":
    write()
