"""Which records cannot be learned from? They are counted, written down with file and row, and skipped while few."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Value
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from qkv.scripts.data.audio import read_wav
from qkv.scripts.data.image import coloured
from qkv.scripts.data.readers import ORIGIN, Fault, Record, line_before

# What a column must hold: gives the value back, or raises Fault.
Check = Callable[[Any], Any]
Checks = Mapping[str, Check]
# Samples of a recording, of which no fewer make features.
SHORTEST = 800


def text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str):
        raise Fault("missing" if value is None else f"{type(value).__name__}, expected a text")
    if not value.strip():
        raise Fault("empty")
    return value


def label(names: Sequence[str]) -> Check:
    """The number of a class, which may be given by its name."""
    return partial(number_of, names=tuple(names))


def number_of(value: Any, names: Sequence[str]) -> int:
    """The number of one of these classes."""
    if isinstance(value, str):
        if value not in names:
            raise Fault(f"label {value!r} is not known")
        return names.index(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Fault("missing" if value is None else f"{type(value).__name__}, expected a label")
    if not 0 <= value < len(names):
        raise Fault(f"label {value} is not in 0 to {len(names) - 1}")
    return value


def picture(value: Any) -> Image.Image:
    """The picture of a file or of its bytes, decoded to its last pixel, in red, green and blue."""
    opened = isinstance(value, Image.Image)
    if not opened and not (isinstance(value, dict) and (value.get("bytes") or value.get("path"))):
        raise Fault("missing" if value is None else "no picture")
    try:
        if opened:
            return coloured(value)
        with Image.open(BytesIO(value["bytes"]) if value.get("bytes") else value["path"]) as found:
            return coloured(found)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        unknown = isinstance(error, UnidentifiedImageError)
        # What the system says names the file, which stands beside the reason.
        reason = "no picture of a known kind" if unknown else getattr(error, "strerror", None) or error
        raise Fault(f"damaged picture: {reason}") from None


def recorded(value: Any) -> bytes:
    """The bytes of a wav file, which may be given by its path."""
    if isinstance(value, dict) and value.get("bytes"):
        return bytes(value["bytes"])
    path = value.get("path") if isinstance(value, dict) else value
    if not isinstance(path, str) or not path:
        raise Fault("missing" if value is None else "no recording")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Fault(f"damaged recording: {error.strerror}") from None


def sound(value: Any) -> NDArray[np.float32]:
    """The samples of a wav file or of its bytes, 16,000 a second; Fault where there are few, or nothing is heard."""
    try:
        samples = read_wav(recorded(value))["raw"]
    except ValueError as error:
        raise Fault(f"damaged recording: {error}") from None
    if len(samples) < SHORTEST:
        raise Fault(f"{len(samples) / 16:.0f} ms of sound, expected {SHORTEST / 16:.0f} or more")
    if samples.min() == samples.max():
        raise Fault("silent all along")
    found: NDArray[np.float32] = samples
    return found


def checked(record: Record, checks: Checks) -> Record:
    """The record's own columns, as the checks give them; Fault names the first that is wrong."""
    if record.get("_fault") is not None:
        raise Fault(record["_fault"])
    own = {name: value for name, value in record.items() if name not in ORIGIN}
    return own | {name: held(record, name, check) for name, check in checks.items()}


def held(record: Record, name: str, check: Check) -> Any:
    """What a column of the record holds."""
    try:
        return check(record.get(name))
    except Fault as fault:
        raise Fault(f"{name}: {fault}") from None


class Complaints:
    """Bad records of a run: in `bad-records.jsonl` of its folder which, and with a summary for its record.

    More than a `share` of them ends the run with a ValueError that names the first. A record is written down once,
    however often a stream or a resumed run comes by it.
    """

    def __init__(self, share: float = 0.0) -> None:
        self.share = share
        self.path: Path | None = None
        self.found: set[tuple[str, int]] = set()
        self.skipped: list[Record] = []

    def open(self, folder: Path, *, is_main: bool) -> None:
        """Write down what was found so far, by one process for all, and from here on what each finds."""
        self.path = folder / "bad-records.jsonl"
        before = read_lines(self.path)
        written = {(line["file"], line["row"]) for line in before}
        new = [line for line in self.skipped if (line["file"], line["row"]) not in written]
        if is_main and (before or new):
            # Anew, for a kill may have cut its last line.
            partial = self.path.with_suffix(".partial")
            partial.write_text("".join(json.dumps(line) + "\n" for line in before + new), encoding="utf-8")
            partial.replace(self.path)
        self.found |= written

    def note(self, origin: Mapping[str, Any], reason: str) -> str:
        """Take note of a bad record; its place and what is wrong, in words."""
        file, row = place(origin)
        if (file, row) not in self.found:
            self.found.add((file, row))
            line = {"file": file, "row": row, "reason": reason}
            self.skipped.append(line)
            if self.path:
                # In one piece, for other processes write too.
                with self.path.open("a", encoding="utf-8") as opened:
                    opened.write(json.dumps(line) + "\n")
        return f"{file}, row {row}: {reason}"

    def judge(self, bad: int, seen: int, first: str, allowed: float = 0) -> None:
        """Raise ValueError where more records are bad than their share, and than `allowed` for want of others."""
        if bad > max(self.share * seen, allowed):
            raise ValueError(
                f"{bad} of {seen} records are bad, more than bad_records={self.share} allows; the first is {first}"
            )

    def summary(self) -> dict[str, Any]:
        """How many records were skipped, and why most."""
        lines = read_lines(self.path) if self.path else self.skipped
        reasons = Counter(line["reason"] for line in lines)
        return {"skipped": len(lines), "reasons": dict(reasons.most_common(10))}


def read_lines(path: Path) -> list[Record]:
    """The whole lines of a file, if it is there: a kill may have cut the last."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def place(origin: Mapping[str, Any]) -> tuple[str, int]:
    """The file of a record, and its row there."""
    begin = origin["_begin"]
    return origin["_file"], origin["_row"] + (line_before(origin["_file"], begin) if begin else 0)


def sift(data: Dataset, checks: Checks, complaints: Complaints, *, processes: int | None = None) -> Dataset:
    """The good records of a table, without the columns that say where they are from.

    All are looked at once, before the training; a second run finds the answer in datasets' cache. ValueError where too
    many are bad.
    """
    find = partial(faults, checks=dict(checks))
    # Said beforehand: of reasons that are all missing at first nobody could tell that they are texts.
    kind = Features({"_reason": Value("string")})
    found = data.map(find, batched=True, batch_size=100, remove_columns=data.column_names, features=kind,
                     num_proc=processes, desc="looking for bad records")  # fmt: skip
    reasons = found["_reason"][:]
    bad = [index for index, reason in enumerate(reasons) if reason is not None]
    origins = [index_origin(data, index) for index in bad]
    said = [complaints.note(origin, reasons[index]) for origin, index in zip(origins, bad, strict=True)]
    complaints.judge(len(bad), len(data), said[0] if said else "")
    good = data.select([index for index, reason in enumerate(reasons) if reason is None]) if bad else data
    return good.remove_columns([name for name in ORIGIN if name in good.column_names])


def index_origin(data: Dataset, index: int) -> Mapping[str, Any]:
    """Where a record of a table is from: data sets that were not read from files have but their order."""
    if "_file" not in data.column_names:
        return {"_file": str(data.info.dataset_name or "data"), "_begin": 0, "_row": index + 1}
    return data.select_columns(list(ORIGIN))[index]


def faults(batch: Mapping[str, Sequence[Any]], checks: Checks) -> dict[str, list[str | None]]:
    """What is wrong with each record of a batch."""
    records = (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))
    return {"_reason": [fault_of(record, checks) for record in records]}


def fault_of(record: Record, checks: Checks) -> str | None:
    """What is wrong with a record, or None."""
    try:
        checked(record, checks)
    except Fault as fault:
        return str(fault)
    return None
