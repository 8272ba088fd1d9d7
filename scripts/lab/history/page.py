"""Write the page of a record in Markdown, in which every number is the record's, or a card's."""

from pathlib import Path
from statistics import mean
from typing import Any

from qkv.scripts.common.files import table
from qkv.scripts.common.templates import render
from qkv.scripts.lab.history.claims import VERDICTS, percent, verdicts
from qkv.scripts.lab.history.lengths import FIT_FROM, STACKS, fitted_exponent, recalled
from qkv.scripts.lab.history.models import LEARNED, TRANSFORMER

# The systems and claims of the documents, and the numbers of papers.
PROMISES: dict[str, Any] = table(str(Path(__file__).with_name("promises.yaml")))


def page(record: dict[str, Any], template: str = "page.md.j2") -> str:
    """Return the page of a record by a template."""
    return render(
        Path(__file__).with_name(template), **record, verdicts=verdicts(record), words=VERDICTS.values(),
        percent=percent, transformer=TRANSFORMER, learned=LEARNED, stacks=STACKS, exponent=fitted_exponent,
        fit_from=FIT_FROM, mean=mean, recalled=recalled(), promises=PROMISES,
    )  # fmt: skip
