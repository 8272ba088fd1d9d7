"""The parity page names every row, within the limits, and every class that is left out."""

import importlib
import re

import transformers
from test_parity import DOUBLE, SINGLE
from transformers import PreTrainedModel

from families import FAMILIES, LEFT_OUT, ROWS
from parity_table import PAGE, lines
from qkv.modeling.conversion.convert import CONVERSIONS

LINE = re.compile(r"\| (\w+) \| ([^|]+) \| Qkv\w+ \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
NUMBERS = " ".join([r"([\d.e+-]+) \|"] * 2)
ARCHITECTURE = re.compile(rf"\| ([a-z][\w-]+) \| \d+ \| {NUMBERS} ([\d.]+|–) \| (\d+ of \d+|–) \| (\d+) \|")


def test_every_row_is_on_the_page_and_within_its_limits() -> None:
    found = LINE.findall(PAGE.read_text(encoding="utf-8"))
    assert [(name, config) for name, config, *_ in found] == [(row.class_name, row.name or "plain") for row in ROWS]
    for name, _, *numbers in found:
        assert max(map(float, numbers[::2])) <= SINGLE and max(map(float, numbers[1::2])) <= DOUBLE, name


def test_every_architecture_was_drawn_from_and_generates_the_same() -> None:
    found = ARCHITECTURE.findall(PAGE.read_text(encoding="utf-8"))
    counts = lines()
    assert [(name, int(written)) for name, *_, written in found] == [(name, counts[name]) for name in FAMILIES]
    for name, single, precise, half, greedy, _ in found:
        assert float(single) <= SINGLE and float(precise) <= DOUBLE and float(half.replace("–", "0")) <= 2, name
        assert len({*greedy.split(" of ")}) == 1, name


def official_classes(name: str) -> set[str]:
    """Every model that transformers publishes beside a class."""
    module = importlib.import_module(getattr(transformers, name).__module__)
    classes = {name: getattr(module, name) for name in module.__all__}
    models = {name for name, found in classes.items() if isinstance(found, type) and issubclass(found, PreTrainedModel)}
    return {name for name in models if not re.search("Pre[tT]rained", name)}  # the base classes of each


def test_every_official_class_converts_or_has_a_reason_not_to() -> None:
    # Its module is another, and what it rounds is measured in `modeling/conversion/test_esmfold.py`.
    converted = {each.theirs for each in CONVERSIONS} - {"EsmForProteinFolding"}
    official = set().union(*map(official_classes, converted))
    assert official - converted == set(LEFT_OUT) and converted <= official
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| {name} | {reason} |" in text for name, reason in LEFT_OUT.items())
