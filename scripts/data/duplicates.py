"""Find rows of evaluated splits that the training split holds, too: equal ones, and texts and images nearly so."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHINGLE, SIMILAR = 5, 0.8  # letters; the Jaccard similarity of the shingles of texts that are nearly equal
BANDS, ROWS = 16, 4  # of the MinHash signature
SIDE, DISTANCE = 16, 8  # of the difference hash of an image; bits of SIDE * SIDE in which nearly equal ones differ
SMALL = 32  # pixels; smaller images are alike whatever they show
MOST = 50_000  # rows that are compared for near duplicates


@dataclass(frozen=True)
class Leak:
    """A row of an evaluated split that is in the training split, by the numbers of both rows."""

    row: int
    train_row: int
    exact: bool


def find_leaks(train: Sequence[Any], evaluated: Sequence[Any]) -> list[Leak]:
    """Return each evaluated row whose value is in the training split, and where; equal before nearly equal.

    Values are texts, images, or bytes, of which only equal ones are found.
    """
    first: dict[bytes, int] = {}
    for row, value in enumerate(train):
        first.setdefault(digest(value), row)
    exact = {row: Leak(row, first[key], exact=True) for row, key in enumerate(map(digest, evaluated)) if key in first}
    near = {row: Leak(row, other, exact=False) for row, other in near_pairs(train, evaluated) if row not in exact}
    return [leak for _, leak in sorted((exact | near).items())]


def digest(value: Any) -> bytes:
    """Return a hash of a value: the same for images of equal pixels, whatever their files."""
    if isinstance(value, Image.Image):
        value = repr((value.size, value.mode)).encode() + value.tobytes()
    return blake2b(value if isinstance(value, bytes) else repr(value).encode(), digest_size=16).digest()


def near_pairs(train: Sequence[Any], evaluated: Sequence[Any]) -> list[tuple[int, int]]:
    """Return (evaluated row, a training row that is nearly equal); none for more rows than can be compared."""
    if not train or not evaluated or len(train) + len(evaluated) > MOST:
        return []
    if isinstance(evaluated[0], str):
        return near_texts(train, evaluated)
    return near_images(train, evaluated) if isinstance(evaluated[0], Image.Image) else []


def near_texts(train: Sequence[str], evaluated: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of texts with like shingles; MinHash finds the candidates.

    Source: Broder 1997, On the resemblance and containment of documents, §4,
        https://doi.org/10.1109/SEQUEN.1997.666900
    """
    known, asked = [shingles(text) for text in train], [shingles(text) for text in evaluated]
    buckets: defaultdict[bytes, list[int]] = defaultdict(list)
    for row, own in enumerate(known):
        for band in bands(own):
            buckets[band].append(row)
    pairs = []
    for row, own in enumerate(asked):
        candidates = dict.fromkeys(other for band in bands(own) for other in buckets.get(band, ()))
        match = next((other for other in candidates if jaccard(own, known[other]) >= SIMILAR), None)
        if match is not None:
            pairs.append((row, match))
    return pairs


def shingles(text: str) -> NDArray[np.uint64]:
    """Return the hashes of all runs of letters of a text, in lower case and with single spaces."""
    plain = re.sub(r"\W+", " ", text.casefold()).strip()
    runs = {plain[start : start + SHINGLE] for start in range(max(1, len(plain) - SHINGLE + 1))}
    return np.array(
        sorted(int.from_bytes(blake2b(run.encode(), digest_size=8).digest(), "big") for run in runs), np.uint64
    )


def bands(own: NDArray[np.uint64]) -> list[bytes]:
    """Return the bands of a MinHash signature, of which similar texts share one with high probability."""
    multipliers = np.random.default_rng(0).integers(0, 2**63, BANDS * ROWS, dtype=np.uint64) * 2 + 1
    signature = (own[:, None] * multipliers).min(0).reshape(BANDS, ROWS)  # modulo 2^64, as a hash
    return [bytes([number]) + band.tobytes() for number, band in enumerate(signature)]


def jaccard(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    """Return the share of shingles that two texts have in common."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)


def near_images(train: Sequence[Image.Image], evaluated: Sequence[Image.Image]) -> list[tuple[int, int]]:
    """Return pairs of images whose difference hashes are alike, such as copies of other size or compression."""
    known = np.array([difference_hash(image) for image in train])
    pairs = []
    for row, image in enumerate(evaluated):
        if min(image.size) >= SMALL:
            distances = np.bitwise_count(known ^ difference_hash(image)).sum(-1)
            if distances.min() <= DISTANCE:
                pairs.append((row, int(distances.argmin())))
    return pairs


def difference_hash(image: Image.Image) -> NDArray[np.uint8]:
    """Return whether each place of a small gray copy is brighter than the one to its left: SIDE * SIDE bits."""
    gray = np.asarray(image.convert("L").resize((SIDE + 1, SIDE), Image.Resampling.BOX), dtype=np.int16)
    return np.packbits(gray[:, 1:] > gray[:, :-1])
