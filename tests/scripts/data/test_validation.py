"""Bad records: every kind is found, named by file and row, written down once, skipped while few and fatal when not."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.loading import read
from qkv.scripts.data.validation import (
    Check,
    RecordValidation,
    check_audio,
    check_image,
    check_label,
    check_text,
    valid_rows,
    validate,
)

CATS = partial(check_label, names=("cat", "dog"))
CHECKS = {"text": check_text, "label": CATS}


def png() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((30, 30), 50).save(file, "png")
    return file.getvalue()


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (check_text, ["", " \n", None, 5]),
        (CATS, [2, -1, "cow", None, True, 0.5]),
        (check_image, [None, {"bytes": None, "path": None}, {"bytes": b"PNG?"}, {"path": "/dev/zero"},
                       {"bytes": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"}, Image.new("F", (2, 2)),
                       {"bytes": png()[:200]}, {"path": "nowhere.png"}]),
        (check_audio, ["/dev/zero", None, "nowhere.wav"]),
    ],
)  # fmt: skip
def test_bad_values_of_every_kind_name_their_column(check: Check, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRecord, match="^a: "):
            validate({"a": value}, {"a": check})


def damaged(folder: Path) -> str:
    """A file with four bad records among twenty."""
    lines: list[bytes] = [json.dumps({"text": f"t{n}", "label": n % 2}).encode() for n in range(20)]
    lines[3], lines[7], lines[8] = b'{"text": "", "label": 0}', b'{"text": "\xff", "label": 0}', b'{"label": 1}'
    lines[11] = b'{"text": "x", "label": 9}'
    (folder / "x.jsonl").write_bytes(b"\n".join(lines))
    return str(folder / "x.jsonl")


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "bad-records.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("processes", [None, 2])
def test_a_table_is_sifted_before_the_training(processes: int | None, tmp_path: Path) -> None:
    path, log = damaged(tmp_path), RecordValidation(0.2)
    good = valid_rows(read(path), CHECKS, log, processes=processes)
    assert good["text"][:] == [f"t{n}" for n in range(20) if n not in (3, 7, 8, 11)]
    assert good.column_names == ["text", "label"]
    log.open(tmp_path, is_main=True)
    assert [(line["file"], line["row"]) for line in logged(tmp_path)] == [(path, row) for row in (4, 8, 9, 12)]
    assert log.summary()["skipped"] == 4 and sum(log.summary()["reasons"].values()) == 4
    with raises_sentence("4 of 20 records", "bad_records=0.19", f"{path}, row 4", "bad_records=0.2"):
        valid_rows(read(path), CHECKS, RecordValidation(0.19))


def test_a_table_from_elsewhere_is_known_by_its_order() -> None:
    log = RecordValidation(0.5)
    good = valid_rows(Dataset.from_dict({"text": [*"a" * 100, "", "b"]}), {"text": check_text}, log)
    assert good["text"][:] == [*"a" * 100, "b"] and [line["row"] for line in log.skipped] == [101]


def test_records_are_written_once_by_whoever_finds_them(tmp_path: Path) -> None:
    origins = [{"_file": "x", "_row": row} for row in (1, 2, 3)]
    first, second, third = (RecordValidation(0.5) for _ in range(3))
    for log in (first, second, third):
        log.add(origins[0], "early")
    first.open(tmp_path, is_main=True)
    second.open(tmp_path, is_main=False)
    for _ in range(2):
        second.add(origins[1], "late")
    assert [line["row"] for line in logged(tmp_path)] == [1, 2]
    # A run that was killed while it wrote goes on.
    with (tmp_path / "bad-records.jsonl").open("a") as file:
        file.write('{"file": "x", "ro')
    third.open(tmp_path, is_main=True)
    third.add(origins[1], "late")
    third.add(origins[2], "new")
    assert [line["row"] for line in logged(tmp_path)] == [1, 2, 3]
    assert third.summary() == {"skipped": 3, "reasons": {"early": 1, "late": 1, "new": 1}}
