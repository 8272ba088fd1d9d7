"""Check that the entries of a manifest are of the types that reading it relies on."""

import re
from collections.abc import Iterator
from typing import Any

RELEASE = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
# The type of each entry.
TYPES: dict[str, type] = {
    **dict.fromkeys(("class", "code", "config", "dtype", "identity"), str),
    **dict.fromkeys(("fields", "files", "loaded", "tensors", "ties", "versions"), dict),
}
# An entry that the manifests of older code and of stock models lack.
RELEASES = "transformers"
# Levels of names in each table, and the type of what is below them.
VALUES: dict[str, tuple[int, type]] = {
    **dict.fromkeys(("files", "fields"), (1, dict)),
    **dict.fromkeys(("ties", "versions"), (1, str)),
    "tensors": (2, str),
    "loaded": (3, str),
}


def malformed(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield the entries of a manifest that have another type than they should."""
    for name, kind in TYPES.items():
        if not isinstance(manifest.get(name), kind):
            yield f"{name} is no {kind.__name__}"
        elif name in VALUES:
            yield from wrong_values(name, manifest[name], *VALUES[name])
    if isinstance(manifest.get("loaded"), dict) and str(manifest.get("dtype")) not in manifest["loaded"]:
        yield "loaded has nothing in its dtype"
    if RELEASES in manifest and not is_range(manifest[RELEASES]):
        yield f"{RELEASES} has no oldest and newest release"


def is_range(value: Any) -> bool:
    """Return whether a value names an oldest and a newest release."""
    names = isinstance(value, dict) and sorted(value) == ["newest", "oldest"]
    return names and all(isinstance(each, str) and RELEASE.fullmatch(each) for each in value.values())


def wrong_values(name: str, value: Any, levels: int, kind: type) -> Iterator[str]:
    """Yield the entries of a table, so many levels deep, that are of another type."""
    if levels and isinstance(value, dict):
        for key, each in value.items():
            yield from wrong_values(f"{key} of {name}", each, levels - 1, kind)
    elif levels or type(value) is not kind:
        yield f"{name} is no {'dict' if levels else kind.__name__}"
