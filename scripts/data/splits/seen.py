"""Remember the rows that a model was trained on, by hashes beside it, and find them among rows that are evaluated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.common.files import replacing_file
from qkv.scripts.data.splits.duplicates import Sketch

SEEN = "training-rows.npz"
HASHES = "_hashes"  # of each split, in the report of data that are divided; no part of the record
USED = ("train", "validation")  # splits that decide the weights
Hashes = Mapping[str, NDArray[np.uint64]]


def row_hashes(rows: Mapping[str, Sequence[Sketch]]) -> Hashes:
    """Return a number for the content of each row of each split."""
    return {name: np.frombuffer(b"".join(row.exact[:8] for row in own), np.uint64) for name, own in rows.items()}


def read_seen(folder: Path) -> Hashes:
    """Return the rows that the model of a folder was trained on, and chosen by; empty where nothing says so."""
    if not (folder / SEEN).is_file():
        return {}
    with np.load(folder / SEEN) as saved:
        return {name: saved[name] for name in USED if name in saved.files}


def write_seen(folder: Path, report: Mapping[str, Any], init: str | None) -> None:
    """Write the rows of a training, and of the run that it started from; nothing for example data and streams."""
    earlier = read_seen(Path(init)) if init else {}
    if hashes := report.get(HASHES):
        parts = {name: [own[name] for own in (earlier, hashes) if name in own] for name in USED}
        rows: dict[str, Any] = {name: np.unique(np.concatenate(own)) for name, own in parts.items() if own}
        with replacing_file(folder / SEEN) as made, made.open("wb") as file:
            np.savez(file, **rows)


def used_in(folder: Path, report: Mapping[str, Any]) -> list[str] | None:
    """Return the split of a folder's training that holds each evaluated row, "" for none; None where not known."""
    seen = read_seen(folder)
    if not seen or HASHES not in report:
        return None
    rows = report[HASHES]["test"]
    return np.select([np.isin(rows, own) for own in seen.values()], list(seen), "").tolist()
