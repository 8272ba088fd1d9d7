"""Findings of a check, and how they are printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

Kind = Literal["broken", "slow", "note"]
ORDER: tuple[Kind, ...] = ("broken", "slow", "note")
INDENT = " " * 4


@dataclass(frozen=True)
class Finding:
    """A sentence about what was seen, why it matters, and how to mend it."""

    kind: Kind
    what: str
    why: str
    mend: str


def spelled(findings: Sequence[Finding], width: int) -> str:
    """Return findings as they are printed, what is broken first."""
    lines: list[str] = []
    for finding in sorted(findings, key=lambda one: ORDER.index(one.kind)):
        lines += ["", *filled(f"{finding.kind}: ", finding.what, width, "")]
        lines += [*filled("why:  ", finding.why, width, INDENT), *filled("mend: ", finding.mend, width, INDENT)]
    return "\n".join(lines[1:])


def filled(name: str, text: str, width: int, indent: str) -> list[str]:
    """Fill lines with a sentence after its name; a line to type is not broken within a word."""
    first, later = indent + name, " " * len(indent + name)
    return wrap(
        f"{text}.", width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )
