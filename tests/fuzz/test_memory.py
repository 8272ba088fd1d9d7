"""Large files that are whole: reading them takes no more than twice their memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_kinds import KINDS, RATE, memory_of_picture, memory_of_wav
from limits import Meter
from PIL import ExifTags, Image

from qkv.scripts.data.audio import write_wav
from qkv.scripts.data.image import read_image
from qkv.scripts.data.readers import read_rows

SHADES = np.add.outer(np.arange(5000) % 251, np.arange(4000) % 241).astype(np.uint16)
LINES = 40_000
TEXT = "word " * 200


def sound(path: Path) -> None:
    path.write_bytes(write_wav(np.sin(np.arange(1200 * RATE, dtype=np.float32) / 9)))


def grey(path: Path) -> None:
    Image.fromarray(SHADES * 100).save(path, compress_level=1)


def colours(path: Path) -> None:
    Image.fromarray((SHADES // 2).astype(np.uint8)).convert("RGB").save(path, compress_level=1)


def photograph(path: Path) -> None:
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    Image.fromarray((SHADES // 2).astype(np.uint8)).convert("RGB").save(path, exif=turned)


def lines(head: str, line: str) -> Callable[[Path], None]:
    return lambda path: (path.write_text(head + line * LINES), None)[1]


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": [f"{number} {TEXT}" for number in range(LINES)]}), path, use_dictionary=False)


def read_all(path: Path) -> None:
    """Read a table as a training does, row by row."""
    for _ in read_rows(path):
        pass


def size(path: Path) -> int:
    return path.stat().st_size


FILES: dict[str, tuple[str, Callable[[Path], Any], Callable[[Path], Any], Callable[[Path], int]]] = {
    "wav": ("x.wav", sound, KINDS["wav"].read, memory_of_wav),
    "PNG": ("x.png", colours, read_image, memory_of_picture),
    "PNG, 16 bits": ("x.png", grey, read_image, memory_of_picture),
    "JPEG, turned": ("x.jpeg", photograph, read_image, memory_of_picture),
    "csv": ("x.csv", lines("text,label\n", f"{TEXT},1\n"), read_all, size),
    "jsonl": ("x.jsonl", lines("", f'{{"text": "{TEXT}"}}\n'), read_all, size),
    "txt": ("x.txt", lines("", f"{TEXT}\n"), read_all, size),
    "parquet": ("x.parquet", parquet, read_all, size),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_a_large_file_is_read_in_little_memory(kind: str, tmp_path: Path) -> None:
    name, make, read, memory = FILES[kind]
    make(path := tmp_path / name)
    with Meter().within_limits(0, lambda: memory(path)):
        read(path)
