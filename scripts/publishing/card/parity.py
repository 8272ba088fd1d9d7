"""Find the parity of a model with transformers: in its certificate, or in the rows of its class in PARITY.md."""

import re
from pathlib import Path
from typing import Any

from qkv.scripts.publishing.card.record import has_field

PAGE = Path(__file__).parents[3] / "model_cards" / "PARITY.md"
MEASURED_WITH = re.compile(r"^(transformers \S+, torch \S+, \S+)\.$", re.MULTILINE)
# What a card needs of a certificate.
CERTIFIED = (
    ("layers",),
    ("limits",),
    ("way back", "tensors"),
    ("way back", "different"),
    ("source", "class"),
    ("target", "class"),
    ("target", "parameters"),
    ("first diverging layer",),
    ("versions",),
)


def parity_rows(stock: str | None) -> tuple[list[str], str]:
    """Return the rows of the page for a class of transformers, and the versions that they were measured with."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| {stock} | ") and "| Qkv" in line]
    return rows, "".join(MEASURED_WITH.findall(page))


def check_certificate(certificate: dict[str, Any], architecture: str) -> None:
    """Raise ValueError for the certificate of another class, and for what is no certificate."""
    for path in CERTIFIED:
        if not has_field(certificate, *path):
            raise ValueError(
                f"this is no certificate of qkv convert --check: it has no {path[0]!r}; give the certificate.json that "
                "it wrote"
            )
    one, other = (certificate[side]["class"] for side in ("source", "target"))
    if architecture not in (one, other):
        raise ValueError(f"the certificate is of {one} and {other}, and this model is a {architecture}; give its own")


def worst_layers(certificate: dict[str, Any]) -> dict[str, tuple[str, dict[str, float]]]:
    """Return {precision: (the layer with the largest relative difference, its numbers)}."""
    return {
        name: max(
            ((layer, measured[name]) for layer, measured in certificate["layers"].items()),
            key=lambda item: item[1]["max"] / (item[1]["scale"] or 1.0),
        )
        for name in certificate["limits"]
    }
