"""Readers of JSON, CSV, text, parquet and images that yield every row with its number, and say which row is invalid.

They stay beside those of `datasets`, whose json, csv and parquet builders give up the whole file for one bad line and
keep neither file nor row. Files are read in pieces of some megabytes, so that several processes can share one and a
stream can resume in its middle.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from qkv.scripts.data.delimited import read_delimited
from qkv.scripts.data.encoding import UTF_8, encoding_of
from qkv.scripts.data.examples import Record
from qkv.scripts.data.json_files import read_json, read_jsonl
from qkv.scripts.data.pieces import InvalidRecord, Piece, Row, attempt, cut_lines, lines, paragraphs

IMAGES = (".png", ".jpg", ".jpeg")


def cut_row_groups(path: Path, documents: str, encoding: str) -> list[int]:
    """Return the numbers of a parquet file's row groups, and their end; ValueError where its footer is missing."""
    try:
        return list(range(pq.ParquetFile(path).num_row_groups + 1))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last for the name of a column
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is no whole parquet file ({reason}); make or fetch it again") from None


def read_text(piece: Piece) -> Iterator[Row]:
    """Read documents of plain text: lines, paragraphs, or the file."""
    if piece.documents == "file":
        documents: Iterator[tuple[int, bytes]] = iter([(1, b"".join(line for _, line in lines(piece)))])
    else:
        documents = paragraphs(piece) if piece.documents == "paragraph" else lines(piece)
    for number, data in documents:
        if data.strip() or piece.documents == "file":
            yield number, attempt(lambda data=data: {"text": piece.decode(data).rstrip("\r\n")})  # type: ignore[misc]


def read_parquet(piece: Piece) -> Iterator[Row]:
    """Read the rows of a row group; where it is damaged, each of them is invalid."""
    file = pq.ParquetFile(piece.path)
    sizes = [file.metadata.row_group(group).num_rows for group in range(piece.end)]
    first, size, done = sum(sizes[:-1]) + 1, sizes[-1], 0
    reason = "its column is shorter than the table"  # of which pyarrow may say nothing
    try:
        for batch in file.iter_batches(1000, row_groups=[piece.begin]):
            yield from enumerate(records_of(batch), first + done)
            done += len(batch)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
    yield from ((row, InvalidRecord(f"damaged parquet: {reason}")) for row in range(first + done, first + size))


def records_of(batch: pa.RecordBatch) -> list[Record | InvalidRecord]:
    """Return the rows of a batch; one whose text is not UTF-8 is invalid."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        return [attempt(lambda at=at: record_of(batch, at)) for at in range(len(batch))]  # type: ignore[misc]


def record_of(batch: pa.RecordBatch, at: int) -> Record:
    """Return a row of a batch; InvalidRecord where its text is not UTF-8."""
    try:
        return batch.slice(at, 1).to_pylist()[0]
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"text that is not UTF-8 from its byte {error.start} on; write the file again") from None


def read_image(piece: Piece) -> Iterator[Row]:
    """Yield the path of an image, which is decoded later, and its label."""
    label = {} if piece.label is None else {"label": piece.label}
    yield 1, {"image": {"path": piece.path, "bytes": None}, **label}


def read_parallel(piece: Piece) -> Iterator[Row]:
    """Read two files whose lines belong together, as `source` and `target`."""
    both = {"source": piece, "target": beside(piece)}
    for number, pair in enumerate(zip_longest(*map(lines, both.values())), start=1):
        texts = zip(both.items(), pair, strict=True)
        yield number, attempt(lambda texts=texts: {  # type: ignore[misc]
            name: each.decode(line[1]).rstrip("\r\n") for (name, each), line in texts
        })  # fmt: skip


def beside(piece: Piece) -> Piece:
    """Return the piece of the target of a piece."""
    path = str(piece.target)
    return Piece(
        path, 0, Path(path).stat().st_size, stamp_of(Path(path)), encoding=encoding_of(Path(path), piece.encoding)
    )


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Return what changes with a file: its size, and two times, of which copying programs keep but the first."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def parallel_piece(source: Path, target: Path, encoding: str = UTF_8) -> Piece:
    """Return two files of lines that belong together; ValueError where one has more lines."""
    piece = Piece(
        str(source), 0, source.stat().st_size, stamp_of(source) + stamp_of(target), "line",
        encoding=encoding_of(source, encoding), target=str(target),
    )  # fmt: skip
    one, other = (sum(1 for _ in lines(each)) for each in (piece, beside(piece)))
    if one != other:
        raise ValueError(
            f"{source} has {one} lines and {target} has {other}; line n of one must belong to line n of the other"
        )
    return piece


@dataclass(frozen=True)
class Format:
    """A kind of files: functions that read a piece, and say where to cut one into pieces, if it is.

    Rows of a format of lines are counted from the piece on.
    """

    rows: Callable[[Piece], Iterator[Row]]
    cuts: Callable[[Path, str, str], list[int]] = lambda path, documents, encoding: [0, path.stat().st_size]
    lined: bool = False

    def pieces(self, path: Path, documents: str, encoding: str = UTF_8) -> list[Piece]:
        """Cut a file into pieces."""
        encoding = encoding_of(path, encoding)
        cuts, stamp = self.cuts(path, documents, encoding), stamp_of(path)
        return [Piece(str(path), *bounds, stamp, documents, encoding=encoding) for bounds in pairwise(cuts)]


JSONL = Format(read_jsonl, lambda path, documents, encoding: cut_lines(path, "line", encoding), lined=True)
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
FORMATS = {**TABLES, ".txt": Format(read_text, cut_lines, lined=True), **dict.fromkeys(IMAGES, Format(read_image))}


def format_of(piece: Piece) -> Format:
    """Return the format of a piece by the suffix of its file."""
    return PARALLEL if piece.target else FORMATS[Path(piece.path).suffix.lower()]
