"""Readers of JSON, CSV, text, parquet and images that yield every row with its number, and say which row is invalid.

The builders of `datasets` read the same files, but give up a file for one bad line, and keep neither file nor row.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from qkv.scripts.data.encoding import UTF_8, encoding_of
from qkv.scripts.data.examples import Record
from qkv.scripts.data.image import PILLOW
from qkv.scripts.data.pieces import InvalidRecord, Piece, Row, attempt, cut_lines, lines, open_bytes, paragraphs

# Endings of the pictures that Pillow decodes.
IMAGES = tuple(suffix for suffix, name in Image.registered_extensions().items() if name in PILLOW)
csv.field_size_limit(2**31 - 1)  # a document may stand in a cell; the limit of csv is 128 KiB
MANY = 10  # lines of a cell that are not by chance all divided as the table is
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
COCO = ("images", "annotations", "categories")


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Return size and times of a file; copying programs keep the first of the times alone."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def cut_row_groups(path: Path, documents: str, encoding: str) -> list[tuple[int, int]]:
    """Return the row groups of a parquet file, and the rows before each; ValueError where its footer is missing."""
    try:
        data = pq.ParquetFile(path).metadata
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last for the name of a column
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is no whole parquet file ({reason}); make or fetch it again") from None
    sizes = [data.row_group(group).num_rows for group in range(data.num_row_groups)]
    return [(group, sum(sizes[:group])) for group in range(len(sizes) + 1)]


def read_parquet(piece: Piece) -> Iterator[Row]:
    """Read the rows of a row group; from where it is damaged on, each of them is invalid."""
    file, done = pq.ParquetFile(piece.path), 0
    size, reason = file.metadata.row_group(piece.begin).num_rows, "its column is shorter than the table"
    try:
        for batch in file.iter_batches(1000, row_groups=[piece.begin]):
            yield from enumerate(batch.to_pylist(), piece.before + done + 1)
            done += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
    for row in range(piece.before + done, piece.before + size):
        yield row + 1, InvalidRecord(f"damaged parquet: {reason}; write the file again")


def read_text(piece: Piece) -> Iterator[Row]:
    """Read documents of plain text: lines, paragraphs, or the file."""
    documents = paragraphs(piece) if piece.documents == "paragraph" else lines(piece)
    if piece.documents == "file":
        documents = iter([(1, b"".join(line for _, line in documents))])
    for number, data in documents:
        if data.strip() or piece.documents == "file":
            yield number, attempt(lambda data=data: {"text": piece.decode(data).rstrip("\r\n")})  # type: ignore[misc]


def read_image(piece: Piece) -> Iterator[Row]:
    """Yield the path of an image, which is decoded later, and its label."""
    label = {} if piece.label is None else {"label": piece.label}
    yield 1, {"image": {"path": piece.path, "bytes": None}, **label}


def read_parallel(piece: Piece) -> Iterator[Row]:
    """Read two files whose lines belong together, as `source` and `target`."""
    other = target_of(piece)
    for (number, source), (_, target) in zip(lines(piece), lines(other), strict=True):
        yield number, attempt(lambda source=source, target=target: {  # type: ignore[misc]
            "source": piece.decode(source).rstrip("\r\n"), "target": other.decode(target).rstrip("\r\n")
        })  # fmt: skip


def target_of(piece: Piece) -> Piece:
    """Return the target of a piece as a piece."""
    path = Path(str(piece.target))
    return replace(piece, path=str(path), end=path.stat().st_size, encoding=encoding_of(path, piece.encoding))


def parallel_piece(source: Path, target: Path, encoding: str = UTF_8) -> Piece:
    """Return two files of lines that belong together; ValueError where one has more lines."""
    stamp, encoding = stamp_of(source) + stamp_of(target), encoding_of(source, encoding)
    piece = Piece(str(source), 0, stamp[0], stamp, encoding=encoding, target=str(target))
    one, other = (sum(1 for _ in lines(each)) for each in (piece, target_of(piece)))
    if one != other:
        raise ValueError(
            f"{source} has {one} lines and {target} has {other}; line n of one must belong to line n of the other"
        )
    return piece


def text_lines(piece: Piece) -> Iterator[str]:
    """Yield the lines of a table; bytes of another encoding become surrogates, which decoding the cells finds."""
    known = "utf-8-sig" if piece.read_as == UTF_8 else piece.read_as
    with TextIOWrapper(open_bytes(piece), known, errors="surrogateescape", newline="") as text:
        yield from text


@cache
def delimiter_of(piece: Piece) -> str:
    """Return the separator of columns: the one of Excel's first line, a tab in TSV, or that with most columns."""
    header = next((line for line in text_lines(piece) if line.strip()), "")
    if header.lower().startswith("sep=") and len(header.strip("\r\n")) == len("sep=,"):
        return header[4]
    if piece.path.lower().endswith(".tsv"):
        return "\t"
    columns = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in DELIMITERS}
    return max(columns, key=lambda mark: columns[mark])


def read_delimited(piece: Piece) -> Iterator[Row]:
    """Read a table with a header, all cells as texts: 007 is no 7. Rows are numbered by the line they end on.

    ValueError for an unclear header.
    """
    read, mark = list[str](), delimiter_of(piece)

    def recorded() -> Iterator[str]:
        for line in text_lines(piece):
            read.append(line)
            yield line

    reader = csv.reader(recorded(), strict=True, delimiter=mark)
    names = header(reader, piece)
    while True:
        done = reader.line_num
        read.clear()
        try:
            row = next(reader)
            inner = list(csv.reader(read[1:-1], delimiter=mark)) if len(read) > MANY + 1 else []
            if inner and len(names) > 1 and all(len(fields) == len(names) for fields in inner):
                raise csv.Error(f"the quote of row {done + 1} is closed {len(read) - 1} rows later")
        except StopIteration:
            return
        except csv.Error as error:  # after a quote that is not closed, every line up to here is lost
            yield from ((line + 1, InvalidRecord(f"not CSV: {error}")) for line in range(done, reader.line_num))
            continue
        if row:
            yield reader.line_num, attempt(partial(cells, row, names, piece))


def header(reader: Any, piece: Piece) -> list[str]:
    """Return the names of the columns; ValueError where one stands twice, or cannot be read."""
    try:
        first = next(filter(None, reader), [])
        first = next(reader, []) if first and first[0].lower() in ("sep=", f"sep={delimiter_of(piece)}") else first
        names = list(cells([name.strip() for name in first], list(map(str, range(len(first)))), piece).values())
    except (InvalidRecord, csv.Error) as error:
        raise ValueError(f"the header of {piece.path} cannot be read: {error}") from None
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"the header of {piece.path} names the column {twice[0]!r} twice; give each a name of its own")
    return names


def cells(row: list[str], names: list[str], piece: Piece) -> Record:
    """Return the cells of a row; InvalidRecord for too many or too few, and for bytes of another encoding."""
    if len(row) != len(names):
        raise InvalidRecord("more or fewer fields than the header")
    texts = [piece.decode(value.encode(piece.read_as, errors="surrogateescape")) for value in row]
    return dict(zip(names, texts, strict=True))


def parse_object(line: bytes, piece: Piece, *, any_value: bool = False) -> Any:
    """Parse JSON; InvalidRecord where there is none, or another value than an object."""
    try:
        value = json.loads(piece.decode(line))
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {getattr(error, 'msg', error)}") from None
    return value if any_value else as_object(value)


def as_object(value: Any) -> Record:
    """Return a record; InvalidRecord for a value of JSON that is none."""
    if not isinstance(value, dict):
        raise InvalidRecord(f"a JSON {type(value).__name__}, not an object")
    return value


def read_jsonl(piece: Piece) -> Iterator[Row]:
    """Read an object from each line; blank lines are no records."""
    yield from ((row, attempt(partial(parse_object, line, piece))) for row, line in lines(piece) if line.strip())


def read_json(piece: Piece) -> Iterator[Row]:
    """Read a list of records, COCO, or, as many programs write, an object in each line; rows are counted from 1."""
    content = b"".join(line for _, line in lines(piece))
    whole = attempt(partial(parse_object, content, piece, any_value=True))
    if isinstance(whole, list):
        yield from ((row, attempt(partial(as_object, value))) for row, value in enumerate(whole, start=1))
    elif isinstance(whole, dict) and any(isinstance(value, list | dict) for value in whole.values()):
        yield from coco_records(whole, Path(piece.path))
    elif content.lstrip().startswith(b"{") or not isinstance(whole, InvalidRecord):
        yield from read_jsonl(piece)
    elif content.strip():
        yield 1, whole


def coco_records(content: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Yield each image with its objects and the size that the boxes are in; crowds are no objects.

    Source: Lin et al. 2014, Microsoft COCO, https://arxiv.org/abs/1405.0312, https://cocodataset.org/#format-data
    """
    if not all(isinstance(content.get(name), list) for name in COCO):
        there = ", ".join(map(str, list(content)[:8]))
        yield 1, InvalidRecord(f"one JSON object with {there}; expected a list of records, or COCO's {', '.join(COCO)}")
        return
    try:
        names = {each["id"]: each["name"] for each in content["categories"]}
        objects: dict[Any, list[Record]] = {image["id"]: [] for image in content["images"]}
        for each in content["annotations"]:
            own = objects.setdefault(each["image_id"], [])
            own += [] if each.get("iscrowd") else [{"bbox": each["bbox"], "category": names[each["category_id"]]}]
        for row, image in enumerate(content["images"], start=1):
            size = [image.get("width"), image.get("height")]
            place = image_path(path.absolute(), image["file_name"])
            yield row, {"image": str(place), "objects": objects.pop(image["id"]), "size": size}
    except (KeyError, TypeError, AttributeError) as error:
        yield 1, InvalidRecord(f"not COCO: an entry without {error}, or one that nothing has as its id")
        return
    for number in objects:
        yield row + 1, InvalidRecord(f"annotations of the image with id {number}, which is not in 'images'")


def image_path(path: Path, name: str) -> Path:
    """Return where the image of a COCO file lies: beside the file, or in a folder beside it or beside its folder."""
    word = path.stem.rpartition("_")[2]  # instances_train2017.json is about the images in train2017
    inner = ("", "images", word, f"images/{word}")
    places = [folder / each / name for folder in (path.parent, path.parent.parent) for each in inner]
    return next((place for place in places if place.is_file()), places[0])


@dataclass(frozen=True)
class Format:
    """A file format: the function that reads a piece, and the one that says where to cut a file into pieces."""

    rows: Callable[[Piece], Iterator[Row]]
    cuts: Callable[[Path, str, str], list[tuple[int, int]]] = lambda path, *_: [(0, 0), (path.stat().st_size, 0)]

    def pieces(self, path: Path, documents: str, encoding: str = UTF_8) -> list[Piece]:
        """Cut a file into pieces."""
        encoding = encoding_of(path, encoding)
        cuts, stamp = self.cuts(path, documents, encoding), stamp_of(path)
        return [
            Piece(str(path), begin, end, stamp, before, documents, encoding=encoding)
            for (begin, before), (end, _) in pairwise(cuts)
        ]


JSONL = Format(read_jsonl, lambda path, _, encoding: cut_lines(path, "line", encoding))
CSV = Format(read_delimited)
PARALLEL = Format(read_parallel)
TABLES = {
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": Format(read_json),
    ".csv": CSV,
    ".tsv": CSV,
    ".parquet": Format(read_parquet, cut_row_groups),
}
FORMATS = {**TABLES, ".txt": Format(read_text, cut_lines), **dict.fromkeys(IMAGES, Format(read_image))}


def format_of(piece: Piece) -> Format:
    """Return the format of a piece by the suffix of its file."""
    return PARALLEL if piece.target else FORMATS[Path(piece.path).suffix.lower()]
