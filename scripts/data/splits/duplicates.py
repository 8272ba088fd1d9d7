"""Find rows of evaluated splits that the training split holds, too: equal ones, and texts and images nearly so."""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
from datasets import Dataset, Features, Value
from PIL import Image
from sklearn.feature_extraction.text import HashingVectorizer

from qkv.scripts.data.validation import check_image, file_bytes

SHINGLE, SIMILAR = 5, 0.8  # letters; the Jaccard similarity of the shingles of texts that are nearly equal
SIDE, DISTANCE = 16, 8  # of the difference hash of an image; bits of SIDE * SIDE in which nearly equal ones differ
SMALL = 32  # pixels; smaller images are alike whatever they show
MOST = 50_000  # rows that are compared for near duplicates
BLOCK = 200  # evaluated texts that are compared at a time
FEATURES = Features({"exact": Value("binary"), "near": Value("binary")})


class Sketch(NamedTuple):
    """Fingerprint of a row: a hash of the whole, and a plain text or the difference hash of an image."""

    exact: bytes
    near: bytes | str = b""


def sketch_bytes(value: bytes) -> Sketch:
    """Sketch a file, of which only equal ones are found."""
    return Sketch(blake2b(value, digest_size=16).digest())


def sketch_text(text: str) -> Sketch:
    """Sketch a text, in lower case and with single spaces between its words."""
    return Sketch(sketch_bytes(text.encode()).exact, re.sub(r"\W+", " ", text.casefold()).strip().ljust(SHINGLE))


def sketch_image(image: Image.Image) -> Sketch:
    """Sketch an image by whether each place of a small gray copy is brighter than the one to its left."""
    whole = sketch_bytes(repr((image.size, image.mode)).encode() + image.tobytes())
    if min(image.size) < SMALL:
        return whole
    gray = np.asarray(image.convert("L").resize((SIDE + 1, SIDE), Image.Resampling.BOX), dtype=np.int16)
    return Sketch(whole.exact, np.packbits(gray[:, 1:] > gray[:, :-1]).tobytes())


def text_sketches(texts: Mapping[str, Sequence[str]]) -> dict[str, list[Sketch]]:
    """Sketch the texts of each split; of many, equal ones alone are found."""
    few = sum(map(len, texts.values())) <= MOST
    return {
        name: [sketch_text(text) if few else sketch_bytes(text.encode()) for text in own] for name, own in texts.items()
    }


def file_sketches(tables: Mapping[str, Dataset], column: Literal["image", "audio"]) -> dict[str, list[Sketch]]:
    """Sketch the files of a column of each split, in datasets' cache."""
    fields: Any = {"input_columns": column, "fn_kwargs": {"kind": column}, "features": FEATURES}
    mapped = {
        name: table.map(sketch_file, remove_columns=table.column_names, desc="looking for duplicates", **fields)
        for name, table in tables.items()
    }
    return {name: [Sketch(**row) for row in table] for name, table in mapped.items()}


def sketch_file(value: Any, kind: str) -> dict[str, Any]:
    """Sketch an image or a recording as a row of a table."""
    made = sketch_image(check_image(value)) if kind == "image" else sketch_bytes(file_bytes(value, "recording"))
    return made._asdict()


def find_leaks(train: Sequence[Sketch], evaluated: Sequence[Sketch]) -> tuple[dict[int, int], dict[int, int] | None]:
    """Return {evaluated row: training row} of equal rows, and of nearly equal ones.

    None stands for the latter where they are not looked for: among too many, recordings, and small images.
    """
    first = {sketch.exact: row for row, sketch in reversed([*enumerate(train)])}
    exact = {row: first[sketch.exact] for row, sketch in enumerate(evaluated) if sketch.exact in first}
    known, asked = ({row: own.near for row, own in enumerate(rows) if own.near} for rows in (train, evaluated))
    if not known or not asked or len(train) + len(evaluated) > MOST:
        return exact, None
    pairs = near_texts if isinstance(next(iter(asked.values())), str) else near_images
    rows, others = list(known), list(asked)
    near = {others[one]: rows[other] for one, other in pairs(list(known.values()), list(asked.values()))}
    return exact, {row: other for row, other in near.items() if row not in exact}


def near_texts(known: Sequence[Any], asked: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield (asked row, known row) of texts that share most of their shingles, the runs of five letters.

    Source: Broder 1997, On the resemblance and containment of documents, §2,
        https://doi.org/10.1109/SEQUEN.1997.666900
    """
    shingles = HashingVectorizer(analyzer="char", ngram_range=(SHINGLE, SHINGLE), binary=True, norm=None,
                                 alternate_sign=False, dtype=np.float32)  # fmt: skip
    those, these = shingles.transform(known), shingles.transform(asked)
    for start in range(0, len(asked), BLOCK):
        block = these[start : start + BLOCK]
        common = (block @ those.T).toarray()
        likeness = np.asarray(common / (block.sum(1) + those.sum(1).T - common))
        yield from (
            (start + row, int(likeness[row].argmax())) for row in np.flatnonzero(likeness.max(1) >= SIMILAR).tolist()
        )


def near_images(known: Sequence[Any], asked: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield (asked row, known row) of images whose hashes are alike, such as copies of other size or compression."""
    hashes = np.array([np.frombuffer(own, np.uint8) for own in known])
    for row, own in enumerate(asked):
        distances = np.unpackbits(np.bitwise_xor(hashes, np.frombuffer(own, np.uint8)), axis=1).sum(1)
        if distances.min() <= DISTANCE:
            yield row, int(distances.argmin())
