"""Report the parity of a model with transformers: its certificate, or the row of its class in PARITY.md."""

import re
from pathlib import Path
from typing import Any

from qkv.scripts.common.tables import markdown_table
from qkv.scripts.publishing.card.model import CardModel

PAGE = Path(__file__).parents[3] / "model_cards" / "PARITY.md"
COLUMNS = ("official class", "config", "qkv class", "in, fp32", "in, fp64", "out, fp32", "out, fp64")
LINE = re.compile(r"^\| (\w+) \| ([^|]+) \| (Qkv\w+) \| " + r"([^|]+) \| " * 3 + r"([^|]+) \|$", re.MULTILINE)
MEASURED_WITH = re.compile(r"^transformers \S+, torch \S+, \S+\.$", re.MULTILINE)


def parity(subject: CardModel, certificate: dict[str, Any] | None = None) -> str:
    """Return what is known of the differences to transformers; nothing where it has no such class."""
    if certificate:
        return certified(certificate, subject.architecture)
    page = PAGE.read_text(encoding="utf-8")
    rows = [line for line in LINE.findall(page) if line[0] == subject.stock]
    if not rows:
        return ""
    versions = MEASURED_WITH.search(page)
    return (
        f"transformers has this architecture as `{subject.stock}`. Measured on small models of that class with random "
        "weights, not on the weights of this one, the two differ by at most (*in*: official to qkv, *out*: back; with "
        f"{versions[0] if versions else 'unknown versions.'}"[:-1]
        + "):\n\n"
        + markdown_table(COLUMNS, rows)
    )


def certified(certificate: dict[str, Any], architecture: str) -> str:
    """Summarise the certificate of a conversion; ValueError for one of another class, or for no certificate."""
    try:
        layers, limits, back = certificate["layers"], certificate["limits"], certificate["way back"]
        one, other = certificate["source"]["class"], certificate["target"]["class"]
        rows = [precision(name, limit, layers) for name, limit in limits.items()]
        different, tensors = len(back["different"]), back["tensors"]
        diverging = certificate["first diverging layer"]
        versions = certificate["versions"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"this is no certificate of qkv convert --check: it has no {error}; give the certificate.json that it wrote"
        ) from error
    if architecture not in (one, other):
        raise ValueError(f"the certificate is of {one} and {other}, and this model is a {architecture}; give its own")
    kept = f"all {tensors:,} tensors are" if not different else f"{different:,} of {tensors:,} tensors are not"
    lines = [f"These weights were converted from `{one}` to `{other}`, and both compared layer by layer:"]
    lines.append(
        markdown_table(("precision", "largest difference", "at numbers up to", "in layer", "limit, relative"), rows)
    )
    if diverging:
        lines.append(f"**They are not the same model**: `{diverging}` is the first layer beyond its limit.")
    lines.append(f"Converted back, {kept} bit-identical to the original. {generation(certificate)}".strip())
    lines.append(f"Measured with torch {versions['torch']}, transformers {versions['transformers']}.")
    return "\n\n".join(lines)


def precision(name: str, limit: float | None, layers: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a precision: the layer with the largest relative difference."""
    layer, worst = max(
        ((layer, measured[name]) for layer, measured in layers.items()),
        key=lambda item: item[1]["max"] / (item[1]["scale"] or 1.0),
    )
    numbers = f"{worst['max']:.1e}", f"{worst['scale']:.1e}"
    return name, *numbers, f"`{layer}`", "none" if limit is None else f"{limit:.1e}"


def generation(certificate: dict[str, Any]) -> str:
    """Return whether both generate the same tokens."""
    equal = certificate.get("generation", {})
    kinds = ", ".join(f"{kind} {'equal' if same else '**different**'}" for kind, same in equal.items())
    return f"Generated tokens: {kinds}." if equal else ""
