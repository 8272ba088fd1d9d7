"""The model that a training starts from, as data and tasks read it: its folder, config, classes and processors."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from qkv.modeling.conversion.files import located


@cache
def pretrained_folder(init: str) -> Path:
    """Return the folder of a run's model, a model folder or a Hub id; ValueError where there is none."""
    try:
        folder = located(init)
    except ValueError as error:
        raise ValueError(f"init={init!r}: {error}; give a run such as runs/first, a model folder or a Hub id") from None
    inner = next((place for place in (folder, folder / "model") if (place / "config.json").is_file()), None)
    if inner is None:
        raise ValueError(f"init={init!r} holds no config.json; give a run such as runs/first, or a model folder")
    return inner


def pretrained_values(init: str) -> dict[str, Any]:
    """Return the fields of a pretrained model's config."""
    values: dict[str, Any] = json.loads((pretrained_folder(init) / "config.json").read_text(encoding="utf-8"))
    return values


def is_regression(init: str | None) -> bool:
    """Tell whether a pretrained model gives one number for a text."""
    values = pretrained_values(init) if init else {}
    classifies = any("SequenceClassification" in name for name in values.get("architectures") or ())
    return classifies and len(values.get("id2label", {0: "", 1: ""})) == 1


def pretrained_classes(init: str | None, known: Iterable[str], head: str = "Classification") -> list[str]:
    """Return the classes of a pretrained head in their order, if all `known` ones are among them, else these."""
    values = pretrained_values(init) if init else {}
    names = [name for _, name in sorted(values.get("id2label", {}).items(), key=lambda item: int(item[0]))]
    own = list(known)
    has_head = any(head in name for name in values.get("architectures") or ())
    return names if has_head and set(own) <= set(names) else own
