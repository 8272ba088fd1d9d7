"""Write the page of a record in Markdown, in which every number is the record's, or a card's."""

from pathlib import Path
from statistics import mean
from typing import Any

from qkv.scripts.common.templates import render
from qkv.scripts.lab.history.claims import VERDICTS, percent, verdicts
from qkv.scripts.lab.history.lengths import FIT_FROM, STACKS, fitted_exponent, recalled
from qkv.scripts.lab.history.models import LEARNED, TRANSFORMER


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    return render(
        Path(__file__).with_name("page.md.j2"), **record, verdicts=verdicts(record), words=VERDICTS.values(),
        percent=percent, transformer=TRANSFORMER, learned=LEARNED, stacks=STACKS, exponent=fitted_exponent,
        fit_from=FIT_FROM, mean=mean, recalled=recalled(),
    )  # fmt: skip
