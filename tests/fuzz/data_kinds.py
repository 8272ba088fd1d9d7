"""Sounds, pictures, tables and recipes, and what others read of them: the standard library, Pillow, pyarrow, PyYAML."""

import csv
import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from kinds import Kind
from PIL import ExifTags, Image, ImageOps

from checkout import ROOT
from qkv.scripts.data.audio import read_wav
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.formats.readers import Row, delimiter_of, read_rows
from qkv.scripts.data.image import upright_image
from qkv.scripts.recipes.fields.keys import flat
from qkv.scripts.recipes.loading import load

RATE = 16_000
RECIPE = ROOT / "scripts" / "recipes" / "copy.yaml"


def wav(folder: Path) -> Path:
    path = folder / "x.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 400, "NONE", "not compressed"))
        file.writeframes(np.random.default_rng(0).integers(-(2**15), 2**15, 400, np.int16).tobytes())
    return path


def check_wav(path: Path, whole: bytes, read: dict[str, Any]) -> None:
    """Compare each sample with the number that its bytes are; at another rate, their number.

    Where a header promises more than the file holds, libsndfile reads to its end, and wave to that of the RIFF chunk.
    """
    with wave.open(str(path)) as file:
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        data, promised = file.readframes(file.getnframes()), file.getnframes()
    frames, heard = len(data) // (width * channels), read["raw"]
    assert read["sampling_rate"] == RATE and len(heard) >= frames * RATE / rate
    assert promised > frames or len(heard) <= frames * RATE / rate + 1
    if rate == RATE:
        starts = range(0, frames * channels * width, width)
        numbers = [int.from_bytes(data[at : at + width], "little", signed=width > 1) for at in starts]
        samples = (np.array(numbers, float) - (128 if width == 1 else 0)) / 2 ** (8 * width - 1)
        np.testing.assert_allclose(heard[:frames], samples.reshape(-1, channels).mean(1), rtol=0, atol=1e-6)


def memory_of_wav(path: Path) -> int:
    """The memory of a file and of its samples as floats."""
    size = path.stat().st_size
    try:
        with wave.open(str(path)) as file:
            return size + 4 * (size // file.getsampwidth())
    except (wave.Error, EOFError, RuntimeError):
        return size


def picture(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pixels = np.random.default_rng(0).integers(0, 255, (12, 9, 3), np.uint8)
        path = folder / f"x.{kind.lower()}"
        Image.fromarray(pixels).save(path, kind)
        return path

    return make


def check_picture(path: Path, whole: bytes, read: Image.Image) -> None:
    """Compare each pixel with what Pillow makes of it."""
    with Image.open(path) as image:
        image.load()
        exif = image.getexif()
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
        pixels = image.convert("RGB")
    pixels.getexif().update({key: value for key, value in exif.items() if key == ExifTags.Base.Orientation})
    assert read.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(read), np.asarray(ImageOps.exif_transpose(pixels)))


def memory_of_picture(path: Path) -> int:
    """The memory of a file and of its pixels in Pillow's four bytes each."""
    size = path.stat().st_size
    try:
        with Image.open(path) as image:
            return size + 4 * image.width * image.height
    except Exception:  # of many kinds
        return size


def table(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(content, encoding="utf-8")
        return path

    return make


def parquet(folder: Path) -> Path:
    path = folder / "x.parquet"
    rows = pa.table({"text": ["a", "b", "c"] * 20, "label": [0, 1, 0] * 20})
    pq.write_table(rows, path, row_group_size=20)
    return path


def all_rows(path: Path) -> list[Row]:
    return list(read_rows(path))


def good(rows: list[Row]) -> list[Row]:
    return [(number, record) for number, record in rows if not isinstance(record, InvalidRecord)]


def has_bad_rows(rows: list[Row]) -> bool:
    return len(good(rows)) < len(rows)


def text_of(path: Path) -> bytes:
    """The bytes of a text in UTF-8, without the mark of its encoding."""
    data = path.read_bytes()
    for encoding in ("utf-32", "utf-16"):
        if data.startswith(("\ufeff".encode(f"{encoding}-le"), "\ufeff".encode(f"{encoding}-be"))):
            data = data.decode(encoding).encode()
            break
    return data.removeprefix(b"\xef\xbb\xbf")


def lines_of(path: Path) -> list[bytes]:
    """The lines of a text; a carriage return ends them where nothing else does."""
    text = text_of(path)
    return text.split(b"\n" if b"\n" in text else b"\r")


def parsed(data: bytes) -> Any:
    """The value of JSON in a line; None where there is none."""
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        return None


def objects(path: Path) -> list[Row]:
    """The JSON objects in the lines of a file, with their numbers."""
    values = [(number, parsed(line)) for number, line in enumerate(lines_of(path), start=1)]
    return [(number, value) for number, value in values if isinstance(value, dict)]


def check_jsonl(path: Path, whole: bytes, rows: list[Row]) -> None:
    """Compare the good rows with the lines that are JSON objects, and count those that are none."""
    assert repr(good(rows)) == repr(objects(path))
    assert len(rows) == sum(bool(line.strip()) for line in lines_of(path))


def check_csv(path: Path, whole: bytes, rows: list[Row]) -> None:
    """Compare the rows with those of the standard library's reader; beside rows of errors, look for their cells."""
    text = text_of(path).decode(errors="surrogateescape")
    records = [record for _, record in good(rows)]
    if len(records) < len(rows):
        cells = {cell for record in records for cell in record.values()}
        assert all(cell in text or cell.replace('"', '""') in text for cell in cells)
        return
    mark = delimiter_of(next(filter(str.strip, io.StringIO(text)), ""))
    names, *lines = [*filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=mark))] or [[]]
    assert records == [dict(zip(map(str.strip, names), line, strict=True)) for line in lines]


def check_parquet(path: Path, whole: bytes, rows: list[Row]) -> None:
    """Compare with the whole table as pyarrow reads it; where it cannot, a row at least is invalid."""
    try:
        expected = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        assert has_bad_rows(rows)
    else:
        assert repr(rows) == repr([*enumerate(expected, start=1)])


def check_recipe(path: Path, whole: bytes, recipe: Any) -> None:
    """Compare the texts of values with those of the loader in Python, and count the keys."""
    text, held = path.read_text(encoding="utf-8"), flat(recipe)
    values, node = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    assert len(values) == len(node.value), "a key stands twice"
    for key, value in values.items():
        is_number = isinstance(held[key], int | float) and not isinstance(value, bool | dict)
        if not isinstance(value, dict):
            assert str(value) == str(held[key]) or (is_number and float(value) == held[key]), (key, value, held[key])


ROWS = 'text,label\n"a, b",1\nc,0\n"d\ne",1\n'
KINDS = {
    "wav": Kind(wav, lambda path: read_wav(path.read_bytes()), check_wav, memory=memory_of_wav),
    **{
        kind.lower(): Kind(
            picture(kind), lambda path: upright_image(path.read_bytes()), check_picture, memory=memory_of_picture
        )
        for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
    },
    "csv": Kind(table("x.csv", ROWS), all_rows, check_csv, has_bad_rows),
    "jsonl": Kind(
        table("x.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n'), all_rows, check_jsonl, has_bad_rows
    ),
    "parquet": Kind(parquet, all_rows, check_parquet, has_bad_rows),
    "recipe": Kind(table("x.yaml", RECIPE.read_text(encoding="utf-8")), lambda path: load(str(path)), check_recipe),
}
