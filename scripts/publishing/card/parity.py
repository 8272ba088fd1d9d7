"""Is the model the same as one of transformers? What a certificate says of its weights, the page of its class."""

import re
from pathlib import Path
from typing import Any

from qkv.scripts.common.markdown import table
from qkv.scripts.publishing.card.subject import Subject

PAGE = Path(__file__).parents[3] / "model_cards" / "PARITY.md"
COLUMNS = ("official class", "config", "qkv class", "in, fp32", "in, fp64", "out, fp32", "out, fp64")
LINE = re.compile(r"^\| (\w+) \| ([^|]+) \| (Qkv\w+) \| " + r"([^|]+) \| " * 3 + r"([^|]+) \|$", re.MULTILINE)
MEASURED_WITH = re.compile(r"^transformers \S+, torch \S+, \S+\.$", re.MULTILINE)


def parity(subject: Subject, certificate: dict[str, Any] | None = None) -> str:
    """What is known of the differences between this model and transformers', nothing where there is no such class."""
    if certificate:
        return certified(certificate, subject.architecture)
    page = PAGE.read_text(encoding="utf-8")
    rows = [line for line in LINE.findall(page) if line[0] == subject.stock]
    if not rows:
        return ""
    found = MEASURED_WITH.search(page)
    return (
        f"transformers has this architecture as `{subject.stock}`. Measured on small models of that class with random "
        "weights, not on the weights of this one, the two differ by at most (*in*: official to qkv, *out*: back; with "
        f"{found[0] if found else 'unknown versions.'}"[:-1]
        + "):\n\n"
        + table(COLUMNS, rows)
    )


def certified(certificate: dict[str, Any], architecture: str) -> str:
    """The certificate of a conversion in short; ValueError for one of another class, or none at all."""
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
    said = [f"These weights were converted from `{one}` to `{other}`, and both compared layer by layer:"]
    said.append(table(("precision", "largest difference", "at numbers up to", "in layer", "limit, relative"), rows))
    if diverging:
        said.append(f"**They are not the same model**: `{diverging}` is the first layer beyond its limit.")
    said.append(f"Converted back, {kept} bit-identical to the original. {generation(certificate)}".strip())
    said.append(f"Measured with torch {versions['torch']}, transformers {versions['transformers']}.")
    return "\n\n".join(said)


def precision(name: str, limit: float | None, layers: dict[str, Any]) -> tuple[str, ...]:
    """The layer that differs most, for its size, in a precision."""
    layer, worst = max(
        ((layer, measured[name]) for layer, measured in layers.items()),
        key=lambda item: item[1]["max"] / (item[1]["scale"] or 1.0),
    )
    numbers = f"{worst['max']:.1e}", f"{worst['scale']:.1e}"
    return name, *numbers, f"`{layer}`", "none" if limit is None else f"{limit:.1e}"


def generation(certificate: dict[str, Any]) -> str:
    """Whether both write the same."""
    found = certificate.get("generation", {})
    said = ", ".join(f"{kind} {'equal' if same else '**different**'}" for kind, same in found.items())
    return f"Generated tokens: {said}." if found else ""
