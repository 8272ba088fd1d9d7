"""Bad records: every kind is found, named by file and row, written down once, skipped while few and fatal when not."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from PIL import Image

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


def png(size: int = 30) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((size, size), 50).save(file, "png")
    return file.getvalue()


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (check_text, "", "empty"),
        (check_text, " \n", "empty"),
        (check_text, None, "missing"),
        (check_text, 5, "int, expected a text"),
        (CATS, 2, "label 2 is not in 0 to 1"),
        (CATS, -1, "label -1 is not in 0 to 1"),
        (CATS, "cow", "label 'cow' is not known"),
        (CATS, None, "missing"),
        (CATS, True, "bool, expected a label"),
        (CATS, 0.5, "float, expected a label"),
        (check_image, None, "missing"),
        (check_image, {"bytes": None, "path": None}, "no image"),
        (check_image, {"bytes": b"PNG?", "path": None}, "damaged image: no image of a known format"),
        (
            check_image,
            {"bytes": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"},
            "damaged image: no image of a known",
        ),
        (check_image, {"path": "/dev/zero"}, "damaged image: 'zero' is no regular file"),
        (check_image, Image.new("F", (2, 2)), "damaged image: an image of mode 'F'"),
        (check_image, {"bytes": png()[:200], "path": None}, "damaged image: "),
        (check_image, {"bytes": None, "path": "nowhere.png"}, "there is no file 'nowhere.png'"),
        (check_audio, "/dev/zero", "damaged recording: 'zero' is no regular file"),
    ],
)
def test_every_kind_of_bad_value_is_told(check: Check, value: Any, said: str) -> None:
    with pytest.raises(InvalidRecord) as fault:
        validate({"a": value}, {"a": check})
    assert str(fault.value).startswith(f"a: {said}")


def damaged(folder: Path) -> Path:
    """A file with four bad records among twenty."""
    lines: list[bytes] = [json.dumps({"text": f"t{n}", "label": n % 2}).encode() for n in range(20)]
    lines[3], lines[7], lines[8] = b'{"text": "", "label": 0}', b'{"text": "\xff", "label": 0}', b'{"label": 1}'
    lines[11] = b'{"text": "x", "label": 9}'
    path = folder / "x.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def test_a_table_is_sifted_before_the_training(tmp_path: Path) -> None:
    path, invalid_records = damaged(tmp_path), RecordValidation(0.2)
    good = valid_rows(read(str(path)), {"text": check_text, "label": CATS}, invalid_records)
    assert good["text"][:] == [f"t{n}" for n in range(20) if n not in (3, 7, 8, 11)]
    assert good.column_names == ["text", "label"]
    invalid_records.open(tmp_path, is_main=True)
    assert [json.loads(line) for line in (tmp_path / "bad-records.jsonl").read_text().splitlines()] == [
        {"file": str(path), "row": row, "reason": reason}
        for row, reason in [
            (4, "text: empty"),
            (
                8,
                "not of its encoding from letter 11 on; save the file as UTF-8, or give its encoding, such as encoding=cp1252",
            ),
            (9, "text: missing"),
            (12, "label: label 9 is not in 0 to 1"),
        ]
    ]
    assert invalid_records.summary()["skipped"] == 4 and invalid_records.summary()["reasons"]["text: empty"] == 1


def test_more_than_the_share_are_fatal_and_the_first_is_named(tmp_path: Path) -> None:
    data = read(str(damaged(tmp_path)))
    with pytest.raises(ValueError) as error:
        valid_rows(data, {"text": check_text, "label": CATS}, RecordValidation(0.19))
    assert str(error.value) == (
        f"4 of 20 records are bad, more than bad_records=0.19 allows; the first is {tmp_path / 'x.jsonl'}, row 4: "
        "text: empty; mend them, or leave them out by bad_records=0.2"
    )


def test_a_table_from_elsewhere_is_known_by_its_order() -> None:
    invalid_records = RecordValidation(0.5)
    good = valid_rows(Dataset.from_dict({"text": ["a", "", "b"]}), {"text": check_text}, invalid_records)
    assert good["text"][:] == ["a", "b"]
    assert [(line["row"], line["reason"]) for line in invalid_records.skipped] == [(2, "text: empty")]


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    checks = {"text": check_text, "label": CATS}
    one, two = RecordValidation(0.2), RecordValidation(0.2)
    alone = valid_rows(read(str(damaged(tmp_path))), checks, one)
    data = read(str(tmp_path / "x.jsonl")).select(range(20))
    assert valid_rows(data, checks, two, processes=2)[:] == alone[:] and two.skipped == one.skipped


def test_records_are_written_once_by_whoever_finds_them(tmp_path: Path) -> None:
    origins = [{"_file": "x", "_row": row} for row in (1, 2, 3)]

    def lines() -> list[int]:
        return [json.loads(line)["row"] for line in (tmp_path / "bad-records.jsonl").read_text().splitlines()]

    first, second = RecordValidation(0.5), RecordValidation(0.5)
    first.add(origins[0], "early")
    second.add(origins[0], "early")
    first.open(tmp_path, is_main=True)
    second.open(tmp_path, is_main=False)
    second.add(origins[1], "late")
    second.add(origins[1], "late")
    assert lines() == [1, 2]
    # A run that was killed while it wrote goes on.
    with (tmp_path / "bad-records.jsonl").open("a") as file:
        file.write('{"file": "x", "ro')
    third = RecordValidation(0.5)
    third.add(origins[0], "early")
    third.open(tmp_path, is_main=True)
    third.add(origins[1], "late")
    third.add(origins[2], "new")
    assert lines() == [1, 2, 3]
    assert third.summary() == {"skipped": 3, "reasons": {"early": 1, "late": 1, "new": 1}}
