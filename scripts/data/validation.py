"""Log and skip invalid records, up to a maximum share."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value
from numpy.typing import NDArray
from PIL import Image

from qkv.scripts.common.files import full_disk_named, regular_bytes, write_atomically
from qkv.scripts.data.audio import read_wav, sound_notes
from qkv.scripts.data.columns import COMMA, FLAGS, THOUSANDS
from qkv.scripts.data.examples import ORIGIN, InvalidRecord, Record, attempt
from qkv.scripts.data.image import image_notes, to_rgb, upright_image

# Converts the value of a column, or checks the values of several; raises InvalidRecord.
Check = Callable[..., Any]
Checks = Mapping[str | tuple[str, ...], Check]
MIN_SAMPLES = 800  # of a recording; fewer make no features


def check_text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str):
        raise InvalidRecord("missing" if value is None else f"{type(value).__name__}, expected a text")
    if not value.strip():
        raise InvalidRecord("empty")
    return value


def check_class(value: Any) -> Any:
    """Return the name or number of a class."""
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        raise InvalidRecord("missing")
    return check_number(value) if isinstance(value, float) else value


def check_flag(value: Any) -> int:
    """Return 1 for a row that has a class, and 0 for another."""
    if value is None or value == "":
        raise InvalidRecord("missing")
    if str(value).lower() not in FLAGS:
        raise InvalidRecord(f"{value!r}, expected 0 or 1")
    return FLAGS[str(value).lower()]


def check_number(value: Any) -> float:
    """Return a number that is finite, perhaps spelled as text, also with a decimal comma."""
    text = check_text(value).strip() if isinstance(value, str) else "" if isinstance(value, bool) else str(value)
    if THOUSANDS.fullmatch(text):
        raise InvalidRecord(f"{value!r} may have a decimal comma or thousands; write it with a point, or without")
    try:
        # Python reads 1_1 as 11.
        number = float(text.replace(",", ".") if COMMA.fullmatch(text) else text.replace("_", "?"))
    except ValueError:
        raise InvalidRecord("missing" if value is None else f"{value!r}, expected a number") from None
    if not isfinite(number):
        raise InvalidRecord(f"{value} is no finite number")
    return number


def check_label(value: Any, names: Sequence[str]) -> int:
    """Return the number of a class, which may be given by its name; -1 is no class, as in data sets of the Hub."""
    if value in names:
        return names.index(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(names):
        known = f"expected a name or 0 to {len(names) - 1}"
        raise InvalidRecord("missing" if value is None else f"label {value!r}, {known}")
    return value


def check_image(value: Any) -> Image.Image:
    """Return the image of a file or of its bytes, upright as pipelines read it, decoded to its last pixel, in RGB."""
    try:
        return to_rgb(value) if isinstance(value, Image.Image) else upright_image(file_bytes(value, "image"))
    except ValueError as error:
        raise InvalidRecord(str(error)) from None


def check_audio(value: Any) -> NDArray[np.float32]:
    """Return the samples of a recording or of its bytes at 16 kHz; InvalidRecord for one too short, or silent."""
    try:
        samples: NDArray[np.float32] = read_wav(file_bytes(value, "recording"))["raw"]
    except ValueError as error:
        raise InvalidRecord(str(error)) from None
    if len(samples) < MIN_SAMPLES:
        raise InvalidRecord(f"{len(samples) / 16:.0f} ms of sound, expected {MIN_SAMPLES / 16:.0f} or more")
    if samples.min() == samples.max():
        raise InvalidRecord("silent all along")
    return samples


NOTES: dict[Check, Callable[[bytes], list[str]]] = {check_image: image_notes, check_audio: sound_notes}


def file_bytes(value: Any, kind: str) -> bytes:
    """Return the bytes of a file, stored or given by its path; InvalidRecord where there are none."""
    if isinstance(value, dict) and value.get("bytes"):
        return bytes(value["bytes"])
    path = value.get("path") if isinstance(value, dict) else value
    if not isinstance(path, str) or not path:
        raise InvalidRecord("missing" if value is None else f"no {kind}")
    try:
        return regular_bytes(path)
    except FileNotFoundError:
        raise InvalidRecord(f"there is no file {Path(path).name!r}") from None
    except (OSError, ValueError) as error:
        # The system's message names the file, which is logged beside the reason.
        raise InvalidRecord(f"damaged {kind}: {getattr(error, 'strerror', None) or error}") from None


def checked_columns(checks: Checks) -> list[str]:
    """Return the columns that checks read."""
    return [name for names in checks for name in ((names,) if isinstance(names, str) else names)]


def validate(record: Record, checks: Checks) -> Record:
    """Return the columns of a record as the checks give them; InvalidRecord names the first that is wrong."""
    if record.get("_invalid") is not None:
        raise InvalidRecord(record["_invalid"])
    columns = {name: value for name, value in record.items() if name not in ORIGIN}
    for names, check in checks.items():
        read = checked_columns({names: check})
        made = attempt(check, *map(record.get, read))
        if isinstance(made, InvalidRecord):
            raise InvalidRecord(f"{' and '.join(read)}: {made}")
        columns |= {names: made} if isinstance(names, str) else {}
    return columns


class RecordValidation:
    """The invalid records of a run, each once, logged in its `bad-records.jsonl`; more than a `share` end the run."""

    def __init__(self, share: float = 0.0) -> None:
        self.share = share
        self.path: Path | None = None
        self.lines: dict[tuple[str, int], Record] = {}
        self.mended: Counter[str] = Counter()

    def open(self, folder: Path, *, is_main: bool) -> None:
        """Log the records that were gathered so far, by one process for all, and the later ones at once."""
        self.path = folder / "bad-records.jsonl"
        self.lines = {(line["file"], line["row"]): line for line in self.logged()} | self.lines
        if is_main and self.lines:  # anew, for a kill may have cut its last line
            write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in self.skipped))

    @property
    def skipped(self) -> list[Record]:
        """Return the invalid records that this process knows."""
        return list(self.lines.values())

    def logged(self) -> list[Record]:
        """Return all complete records of the log, or the gathered ones before it is opened."""
        if self.path is None or not self.path.exists():
            return [] if self.path else self.skipped
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def add(self, record: Mapping[str, Any], reason: str) -> str:
        """Log an invalid record; return its file, row and reason in words."""
        line = {"file": record["_file"], "row": record["_row"], "reason": reason}
        if (key := (line["file"], line["row"])) not in self.lines:
            self.lines[key] = line
            if self.path:  # in one piece, for other processes write too
                with full_disk_named(self.path), self.path.open("a", encoding="utf-8") as opened:
                    opened.write(json.dumps(line) + "\n")
        return "{file}, row {row}: {reason}".format(**line)

    def check_share(self, invalid: int, total: int, first: str, allowed: float = 0) -> None:
        """Raise ValueError where more records are invalid than their share, and than `allowed` in a small sample."""
        if invalid > max(self.share * total, allowed):
            needed = ceil(100 * invalid / total) / 100
            mend = f"mend them, or leave them out by bad_records={needed}" if needed < 1 else "mend them"
            allows = f"more than bad_records={self.share} allows"
            raise ValueError(f"{invalid} of {total} records are bad, {allows}; the first is {first}; {mend}")

    def summary(self) -> dict[str, Any]:
        """Return how many records were skipped, and the most frequent reasons."""
        reasons = Counter(line["reason"] for line in self.logged())
        return {"skipped": reasons.total(), "reasons": dict(reasons.most_common(10))}


def valid_rows(data: Dataset, checks: Checks, log: RecordValidation, *, processes: int | None = None) -> Dataset:
    """Return the valid records of a table, without the columns of their origin."""
    # Typed beforehand: the type of a column cannot be inferred from a first batch of None.
    features = Features({"_reason": Value("string"), "_notes": List(Value("string"))})
    mapped = data.map(partial(reasons_of, checks=dict(checks)), batched=True, batch_size=100, features=features,
                      remove_columns=data.column_names, num_proc=processes, desc="validating records")  # fmt: skip
    reasons = mapped["_reason"][:]
    log.mended.update(chain(*mapped["_notes"]))
    invalid = [row for row, reason in enumerate(reasons) if reason is not None]
    origin: dict[str, Any] = {
        "_file": [str(data.info.dataset_name or "data")] * len(data),
        "_row": range(1, len(data) + 1),
    }
    if "_file" in data.column_names:
        origin = {name: data[name] for name in origin}
    messages = [log.add({name: own[row] for name, own in origin.items()}, reasons[row]) for row in invalid]
    log.check_share(len(invalid), len(data), messages[0] if messages else "")
    valid = data.select([row for row, reason in enumerate(reasons) if reason is None]) if invalid else data
    return valid.remove_columns([name for name in ORIGIN if name in valid.column_names])


def reasons_of(batch: Mapping[str, Sequence[Any]], checks: Checks) -> dict[str, list[Any]]:
    """Return why each record of a batch is invalid, or None, and how the files of the valid ones are changed."""
    records = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    made = [attempt(validate, record, checks) for record in records]
    invalid = [isinstance(each, InvalidRecord) for each in made]
    media = [(name, NOTES[check]) for name, check in checks.items() if isinstance(name, str) and check in NOTES]
    notes = [[note for name, of in media if not bad for note in of(file_bytes(record[name], name))]
             for record, bad in zip(records, invalid, strict=True)]  # fmt: skip
    return {"_reason": [str(each) if bad else None for each, bad in zip(made, invalid, strict=True)], "_notes": notes}
