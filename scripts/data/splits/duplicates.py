"""Find rows of evaluated splits that the training split holds, too: equal ones, and texts and images nearly so."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHINGLE, SIMILAR = 5, 0.8  # letters; the Jaccard similarity of the shingles of texts that are nearly equal
BANDS, ROWS = 16, 4  # of the MinHash signature
SIDE, DISTANCE = 16, 8  # of the difference hash of an image; bits of SIDE * SIDE in which nearly equal ones differ
SMALL = 32  # pixels; smaller images are alike whatever they show
MOST = 50_000  # rows that are compared for near duplicates

Numbers = NDArray[np.uint8] | NDArray[np.uint64]


@dataclass(frozen=True)
class Sketch:
    """Hashes that rows are compared by: of the whole value, and of its parts for near ones."""

    exact: bytes
    near: Numbers

    @classmethod
    def of_bytes(cls, value: bytes) -> "Sketch":
        """Sketch a file or a recording, of which only equal ones are found."""
        return cls(digest(value), np.zeros(0, np.uint8))

    @classmethod
    def of_text(cls, text: str) -> "Sketch":
        """Sketch a text by its shingles: all runs of five letters, in lower case and with single spaces."""
        plain = re.sub(r"\W+", " ", text.casefold()).strip()
        runs = {plain[start : start + SHINGLE] for start in range(max(1, len(plain) - SHINGLE + 1))}
        hashes = (int.from_bytes(blake2b(run.encode(), digest_size=8).digest(), "big") for run in runs)
        return cls(digest(text.encode()), np.array(sorted(hashes), np.uint64))

    @classmethod
    def of_image(cls, image: Image.Image) -> "Sketch":
        """Sketch an image by whether each place of a small gray copy is brighter than the one to its left."""
        exact = digest(repr((image.size, image.mode)).encode() + image.tobytes())
        if min(image.size) < SMALL:
            return cls(exact, np.zeros(0, np.uint8))
        gray = np.asarray(image.convert("L").resize((SIDE + 1, SIDE), Image.Resampling.BOX), dtype=np.int16)
        return cls(exact, np.packbits(gray[:, 1:] > gray[:, :-1]))


@dataclass(frozen=True)
class Leak:
    """A row of an evaluated split that is in the training split, by the numbers of both rows."""

    row: int
    train_row: int
    exact: bool


def digest(value: bytes) -> bytes:
    """Return a hash of a value."""
    return blake2b(value, digest_size=16).digest()


def find_leaks(train: Sequence[Sketch], evaluated: Sequence[Sketch]) -> list[Leak]:
    """Return each evaluated row that is in the training split, and where; equal before nearly equal."""
    first: dict[bytes, int] = {}
    for row, sketch in enumerate(train):
        first.setdefault(sketch.exact, row)
    exact = {row: first[sketch.exact] for row, sketch in enumerate(evaluated) if sketch.exact in first}
    near = dict(near_pairs(train, evaluated)) | exact
    return [Leak(row, train_row, exact=row in exact) for row, train_row in sorted(near.items())]


def near_pairs(train: Sequence[Sketch], evaluated: Sequence[Sketch]) -> list[tuple[int, int]]:
    """Return (evaluated row, a training row that is nearly equal)."""
    if not can_be_similar(train, evaluated):
        return []
    known, asked = ({row: each.near for row, each in enumerate(rows) if len(each.near)} for rows in (train, evaluated))
    return near_texts(known, asked) if next(iter(asked.values())).dtype == np.uint64 else near_images(known, asked)


def can_be_similar(train: Sequence[Sketch], evaluated: Sequence[Sketch]) -> bool:
    """Tell whether nearly equal rows are looked for: not among too many, recordings, and small images."""
    few = len(train) + len(evaluated) <= MOST
    return few and all(any(len(each.near) for each in rows) for rows in (train, evaluated))


def near_texts(known: dict[int, Numbers], asked: dict[int, Numbers]) -> list[tuple[int, int]]:
    """Return pairs of texts with like shingles; MinHash finds the candidates.

    Source: Broder 1997, On the resemblance and containment of documents, §4,
        https://doi.org/10.1109/SEQUEN.1997.666900
    """
    buckets: defaultdict[bytes, list[int]] = defaultdict(list)
    for row, own in known.items():
        for band in bands(own):
            buckets[band].append(row)
    pairs = []
    for row, own in asked.items():
        candidates = dict.fromkeys(other for band in bands(own) for other in buckets.get(band, ()))
        match = next((other for other in candidates if jaccard(own, known[other]) >= SIMILAR), None)
        if match is not None:
            pairs.append((row, match))
    return pairs


def bands(shingles: Numbers) -> list[bytes]:
    """Return the bands of a MinHash signature, of which similar texts share one with high probability."""
    multipliers = np.random.default_rng(0).integers(0, 2**63, BANDS * ROWS, dtype=np.uint64) * 2 + 1
    signature = (shingles[:, None] * multipliers).min(0).reshape(BANDS, ROWS)  # modulo 2^64, as a hash
    return [bytes([number]) + band.tobytes() for number, band in enumerate(signature)]


def jaccard(one: Numbers, other: Numbers) -> float:
    """Return the share of shingles that two texts have in common."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)


def near_images(known: dict[int, Numbers], asked: dict[int, Numbers]) -> list[tuple[int, int]]:
    """Return pairs of images whose difference hashes are alike, such as copies of other size or compression."""
    rows, hashes, pairs = list(known), np.array(list(known.values())), []
    for row, own in asked.items():
        distances = np.unpackbits(hashes ^ own, axis=1).sum(1)
        if distances.min() <= DISTANCE:
            pairs.append((row, rows[int(distances.argmin())]))
    return pairs
