"""Write model_cards/PARITY.md: how far every official class is from ours, measured here and now (a quarter of an hour).

`python tests/support/parity_table.py`; with names of architectures, such as `gemma2 mixtral`, only their rows are
measured, and others stay as they are. `test_parity_table.py` keeps the page and the rows equal.
"""

import copy
import platform
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache, partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import conftest  # noqa: F401  makes the checkout importable
    import every_test  # noqa: F401

import torch
import transformers
from test_parity import DOUBLE, GENERATED_FROM, SINGLE, assert_identical, distance, double
from test_parity_space import search
from transformers import PreTrainedConfig

from families import FAMILIES, LEFT_OUT, ROWS
from families.base import Family, Row
from families.half_precision import FIRST, run
from qkv.modeling.conversion.config import Conversion, declared
from qkv.modeling.conversion.convert import CONVERSIONS, from_transformers, to_transformers

CONVERSION = Path(__file__).resolve().parents[2] / "modeling" / "conversion"
PAGE = Path(__file__).resolve().parents[2] / "model_cards" / "PARITY.md"
DRAWN = 30
MEASURED_WITH = f"transformers {transformers.__version__}, torch {torch.__version__}, {platform.machine()}."
HEAD = f"""# Parity with transformers

<!-- Written by `python tests/support/parity_table.py`; change that, never this file. -->

Each row takes a small model of the official class with random weights, every one of them moved off its initial value,
and the same inputs with and without padding. Differences are the largest over logits, loss, every hidden state, every
attention and pooled output, at real tokens. *In* compares the official model with `qkv.from_transformers` of it, *out*
compares our model with `qkv.to_transformers` of it, whose every tensor is bit-identical to the official one's.
Limits: {SINGLE:g} in single precision, {DOUBLE:g} in double precision (there both sides compute in double what
transformers otherwise rounds to single: norms, softmax, angles, losses).

{MEASURED_WITH}

| official class | config | qkv class | in, fp32 | in, fp64 | out, fp32 | out, fp64 |
| --- | --- | --- | --- | --- | --- | --- |
"""
SPACE = f"""
## By architecture

*Drawn* is the largest difference over {DRAWN} configs of each, drawn from all that its config may legally say, each
with a head; every one of them went back bit-identical. *bf16* is our largest error divided by stock's, both against
double precision, of one class. *Greedy* counts equal tokens of all classes that generate. *Lines* are those of its
entry in `modeling/conversion/` and of the tables in `weights.yaml` that it names; what it takes from a relative counts
there. *Must stay as it is by default* lists fields of its config that another value of is refused.

| architecture | classes | drawn, fp32 | drawn, fp64 | bf16 | greedy | lines | must stay as it is by default |
| --- | --- | --- | --- | --- | --- | --- | --- |
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


def half_error(row: Row) -> float:
    """Our largest error in bfloat16, divided by stock's."""
    official = row.build()
    with double():
        precise = run(row, copy.deepcopy(official).double(), ours=False)
    official = official.bfloat16()
    theirs, mine = (
        run(row, model, ours=ours) for model, ours in ((official, False), (from_transformers(official), True))
    )
    return max(float((mine[name] - true).norm() / (theirs[name] - true).norm()) for name, true in precise.items())


def greedy(row: Row) -> tuple[int, int]:
    """How many tokens of ours are theirs, and how many there are."""
    given = row.inputs(row.sides[-1])
    inputs = {name: given[name] for name in GENERATED_FROM if name in given}
    official = row.build()
    if hasattr(official.config, "output_router_logits"):  # stock has no mask of one token for its losses of routers
        official.config.output_router_logits = False
    theirs, mine = (
        model.generate(**inputs, max_new_tokens=8, do_sample=False) for model in (official, from_transformers(official))
    )
    return int((mine == theirs).sum()), theirs.numel()


@cache
def lines() -> dict[str, int]:
    """Lines of each architecture's entry, and of the tables of weights that it names; of several, the most."""
    text = (CONVERSION / "weights.yaml").read_text(encoding="utf-8")
    tables = {name: 1 + rows.count("\n") for name, rows in re.findall(r"^(\w+): \|\n((?:  .*\n)+)", text, re.MULTILINE)}
    found: dict[str, int] = {}
    for model_type, count, names in entries():
        found[model_type] = max(count + sum(tables[name] for name in names), found.get(model_type, 0))
    return found


def entries() -> Iterator[tuple[str, int, list[str]]]:
    """Each architecture of YAML files: its type, its lines and its tables."""
    for path in CONVERSION.glob("*.yaml"):
        written = path.read_text(encoding="utf-8")
        for name, text in re.findall(r"^  ([\w-]+):(.*\n(?:    .*\n)*)", written, re.MULTILINE):
            said = re.search(r"^    model_type: (\S+)", text, re.MULTILINE)
            rows = " ".join(re.findall(r"\brows: ([\w@. ]+)", text))
            yield said[1] if said else name, text.count("\n"), [each.partition("@")[0] for each in rows.split()]


def fixed(conversions: list[Conversion]) -> list[str]:
    """Fields of the official config that nothing reads, and that may not be ignored."""
    stock = conversions[0].stock
    read = {codec.name.partition(".")[0] for each in conversions for _, codec in each.fields}
    inert = set.intersection(*(set(each.inert) for each in conversions))
    left = declared(stock) - declared(PreTrainedConfig) - read - inert - stock.sub_configs.keys()
    return sorted(name for name in left if not name.startswith("_"))


def architecture(name: str, family: Family) -> str:
    """One line of the table of architectures."""
    numbers = " | ".join(f"{value:.1e}" for value in search(family, DRAWN))
    conversions = [each for each in CONVERSIONS if each.model_type == name]
    counted = [greedy(row) for row in family.rows() if row.generates]
    tokens = f"{sum(equal for equal, _ in counted)} of {sum(every for _, every in counted)}" if counted else "–"
    half = f"{half_error(FIRST[name]):.2f}" if name in FIRST else "–"
    refused = ", ".join(f"`{field}`" for field in fixed(conversions)) or "–"
    return f"| {name} | {len(family.heads)} | {numbers} | {half} | {tokens} | {lines()[name]} | {refused} |\n"


def kept() -> dict[str, str]:
    """The lines of the page by what they are of, up to their numbers; of other releases none."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True) if f"\n{MEASURED_WITH}\n" in text else []
    return {line.rpartition(" | Qkv")[0] or line.split(" | ")[0]: line for line in lines}


def write(names: Collection[str]) -> None:
    """Measure everything, or some architectures, then write the page."""
    torch.set_num_threads(1)
    earlier = kept() if names else {}
    rows = [
        (f"| {row.class_name} | {row.name or 'plain'}", row.family.model_type, partial(measure, row)) for row in ROWS
    ]
    summaries = [(f"| {name}", name, partial(architecture, name, family)) for name, family in FAMILIES.items()]
    page, space = (
        "".join(make() if name in names or key not in earlier else earlier[key] for key, name, make in lines)
        for lines in (rows, summaries)
    )
    gaps = "".join(f"| {name} | {reason} |\n" for name, reason in sorted(LEFT_OUT.items()))
    PAGE.with_suffix(".partial").write_text(HEAD + page + SPACE + space + GAPS + gaps, encoding="utf-8")
    PAGE.with_suffix(".partial").replace(PAGE)


if __name__ == "__main__":
    write(sys.argv[1:])
