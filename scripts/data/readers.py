"""Read the rows of JSON, CSV, text and parquet with their numbers: unconverted values, or why a row is invalid.

The builders of `datasets` give up a file for one bad line, and take the types of a column from its beginning.
"""

import csv
import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from qkv.scripts.data.examples import InvalidRecord, Record, attempt
from qkv.scripts.data.image import PILLOW

UTF_8 = "utf-8"
# Longer marks first: the mark of UTF-32 begins with the mark of UTF-16.
MARKS = {BOM_UTF32_LE: "utf-32", BOM_UTF32_BE: "utf-32", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16",
         BOM_UTF8: "utf-8-sig"}  # fmt: skip
DELIMITERS = ",;\t|"
WRAPPERS = ("data", "rows", "records", "examples")  # of a list of records in an object
COCO = ("images", "annotations", "categories")
# Endings of the pictures that Pillow decodes.
IMAGES = tuple(suffix for suffix, name in Image.registered_extensions().items() if name in PILLOW)
# The number of a row in its file, and its values or the reason why it is invalid.
Row = tuple[int, Record | InvalidRecord]
csv.field_size_limit(2**31 - 1)  # a document may stand in a cell; the limit of csv is 128 KiB


def read_rows(path: str | Path, documents: str = "line", encoding: str = UTF_8) -> Iterator[Row]:
    """Read the rows of a file; a document of plain text is a "line", a "paragraph" or the "file"."""
    try:
        yield from FORMATS[Path(path).suffix.lower()](Path(path), documents, encoding)
    except (UnicodeError, LookupError, InvalidRecord) as error:  # a header or a list cannot be skipped
        raise ValueError(f"{path}: {error}; give its encoding=, such as utf-8, latin-1, cp1252 or utf-16") from None


def open_text(path: Path, encoding: str, newline: str = "\n") -> TextIO:
    """Open a text in the encoding of its byte order mark, else in `encoding`; wrong bytes become surrogates.

    A carriage return ends a line where a file, as of an old Mac, has no other line ends.
    """
    with path.open("rb") as file:
        first = file.read(4)
    known = next((name for mark, name in MARKS.items() if first.startswith(mark)), encoding)
    if known == UTF_8 and b"\0" in first:
        raise UnicodeError("it has zero bytes, as UTF-16 without its mark, utf-16-le or utf-16-be, has")
    how: dict[str, Any] = {"encoding": known, "errors": "surrogateescape"}
    with path.open(newline="\n", **how) as file:
        first_line = file.readline()
    is_old_mac = "\r" in first_line and not first_line.endswith("\n")  # then the file has no other line end
    return path.open(newline=None if is_old_mac else newline, **how)


def whole(text: str) -> str:
    """Return a text; InvalidRecord where bytes of another encoding, or half of a pair, became a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        mend = "save the file as UTF-8, or give its encoding, such as encoding=cp1252"
        raise InvalidRecord(f"not of its encoding from letter {error.start + 1} on; {mend}") from None
    return text


def read_text(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read documents of plain text: lines, paragraphs between blank lines, or the file."""
    with open_text(path, encoding) as file:
        blocks = groupby(enumerate(file, start=1), key=lambda line: documents == "file" or bool(line[1].strip()))
        for filled, lines in blocks:
            if documents != "line":
                own = list(lines)
                lines = iter([(own[0][0], "".join(line for _, line in own))])
            yield from ((row, attempt(text_row, text)) for row, text in lines if filled)


def text_row(text: str) -> Record:
    """Return a document of plain text."""
    return {"text": whole(text).rstrip("\r\n")}


def is_plain(file: TextIO, delimiter: str) -> bool:
    """Tell whether quotes are letters: all lines of tabs have as many cells, and one begins with a quote that it lacks
    at its end.
    """
    widths, opened = set[int](), False
    for line in file if delimiter == "\t" else ():
        cells = line.rstrip("\r\n").split(delimiter)
        widths |= {len(cells)} if line.strip() else set()
        opened = opened or any(cell[:1] == '"' and (len(cell) < 2 or cell[-1] != '"') for cell in cells)
    return len(widths) == 1 and opened


def delimiter_of(header: str) -> str:
    """Return the separator of columns that stands most often outside quotes."""
    return max(DELIMITERS, key=re.sub(r'"[^"]*"', "", header).count)


def read_csv(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read a table with a header, all cells as texts; rows are numbered by the line that they end on."""
    with open_text(path, encoding, newline="") as file:
        first = next(filter(str.strip, file), "")
        mark = "\t" if path.suffix.lower() == ".tsv" else delimiter_of(first)
        file.seek(0)
        quoting: Any = csv.QUOTE_NONE if is_plain(file, mark) else csv.QUOTE_MINIMAL
        file.seek(0)
        reader = csv.reader(file, delimiter=mark, strict=True, quoting=quoting)
        try:
            rows = filter(any, reader)  # spreadsheets leave lines of nothing but separators
            names = next(rows, [])
            names = [name.strip() for name in (next(rows, []) if names[:1] in (["sep="], ["SEP="]) else names)]
            names = names[: max((place for place, name in enumerate(names, start=1) if name), default=0)]
            whole("".join(names))
            if twice := [repr(name) for name, count in Counter(names).items() if count > 1]:
                raise ValueError(f"the header of {path} names a column twice: {', '.join(twice)}; rename one of them")
            yield from ((reader.line_num, attempt(table_row, names, cells, place)) for place, cells in enumerate(rows))
        except csv.Error as error:
            raise ValueError(f"{path}, row {reader.line_num}: not CSV ({error}); mend its quotes") from None


def table_row(names: list[str], cells: list[str], place: int) -> Record:
    """Return the cells of a row by name; InvalidRecord for too many or too few, and for the header of a joined file."""
    if place and [cell.lstrip("\ufeff").strip() for cell in cells] == names:
        raise InvalidRecord("the header again")
    if len(cells) != len(names) and (any(cells[len(names) :]) or len(cells) < len(names)):
        more = "; put quotes around a cell that holds a separator" if len(cells) > len(names) else ""
        raise InvalidRecord(f"{len(cells)} fields, but {len(names)} in the header{more}")
    return dict(zip(names, map(whole, cells), strict=False))


def parsed(line: str) -> Record:
    """Parse an object of JSON; InvalidRecord where there is none."""
    try:
        return as_object(loads(whole(line)))
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {getattr(error, 'msg', error)}") from None


def loads(text: str) -> Any:
    """Parse JSON; InvalidRecord for a key that an object has twice, of which the parser keeps the last."""

    def checked(pairs: list[tuple[str, Any]]) -> Record:
        if twice := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
            raise InvalidRecord(f"an object with the key {twice[0]!r} twice")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=checked)


def as_object(value: Any) -> Record:
    """Return a record; InvalidRecord for another value of JSON."""
    if not isinstance(value, dict):
        raise InvalidRecord(f"a JSON {type(value).__name__}, not an object")
    return value


def read_jsonl(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read an object from each line; blank lines are no records."""
    with open_text(path, encoding) as file:
        yield from ((row, attempt(parsed, line)) for row, line in enumerate(file, start=1) if line.strip())


def read_json(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read a list of records, COCO, or, as many programs write, an object in each line; rows are counted from 1."""
    with open_text(path, encoding) as file:
        content = file.read()
    try:
        value = loads(whole(content))
    except (ValueError, RecursionError) as error:
        if not content.lstrip().startswith("{"):
            raise ValueError(f"{path} is not JSON: {error}") from None
        value = None
    within = [value[name] for name in WRAPPERS if isinstance(value, dict) and value.get(name)]
    value = within[0] if within and isinstance(within[0], list) else value
    if isinstance(value, list):
        records = squad_records(value, path) if is_squad(value) else value
        yield from ((row, attempt(as_object, each)) for row, each in enumerate(records, start=1))
    elif isinstance(value, dict) and any(isinstance(each, list | dict) for each in value.values()):
        yield from coco_rows(value, path)
    else:
        yield from read_jsonl(path, documents, encoding)


def is_squad(value: list[Any]) -> bool:
    """Tell whether the first record is an article of SQuAD, with questions about its paragraphs."""
    paragraphs = value[0].get("paragraphs") if value and isinstance(value[0], dict) else None
    return isinstance(paragraphs, list) and any(isinstance(each, dict) and "qas" in each for each in paragraphs)


def squad_records(articles: list[Any], path: Path) -> Iterator[Record]:
    """Yield each question of SQuAD with its context, its answers and the title of its article.

    Source: Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822, https://rajpurkar.github.io/SQuAD-explorer
    """
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    own = {"id": asked.get("id"), "title": article.get("title"), "question": asked["question"]}
                    yield own | {"answers": asked.get("answers") or [], "context": paragraph["context"]}
    except (KeyError, TypeError, AttributeError) as error:
        form = "articles with paragraphs, each with a context, and with qas, each with a question and answers"
        raise ValueError(f"{path} is SQuAD with an entry that is wrong or lacks {error}; expected {form}") from None


def coco_rows(content: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Yield each image with its objects and the size that the boxes are in; InvalidRecord for images that are not one.

    Ids are compared as texts, for some programs write one of a pair as one. Source: Lin et al. 2014, Microsoft COCO,
    https://arxiv.org/abs/1405.0312, https://cocodataset.org/#format-data
    """
    objects, word = defaultdict[str, list[Record]](list), path.stem.rpartition("_")[2]
    # instances_train2017.json is about the images in train2017, beside the file or beside its folder.
    places = [path.absolute().parents[up] / inner for up in (0, 1) for inner in ("", "images", word, f"images/{word}")]
    try:
        names = {str(each["id"]): str(each["name"]) for each in content["categories"]}
        if len(different := {*names.values()}) < len(content["categories"]):
            held = f"{len(content['categories'])} categories with {len(different)} names"
            raise ValueError(f"{path} has {held}; give each category another id and name")
        for each in content["annotations"]:
            kind = names.get(str(each["category_id"]), InvalidRecord(f"category_id {each['category_id']} has no name"))
            entry = {"bbox": each.get("bbox"), "category": kind} | ({"iscrowd": 1} if each.get("iscrowd") else {})
            objects[str(each["image_id"])].append(entry)
        ids, files = (Counter(str(each[key]) for each in content["images"]) for key in ("id", "file_name"))
        for row, image in enumerate(content["images"], start=1):
            size, name, number = [image.get("width"), image.get("height")], image["file_name"], str(image["id"])
            place = next((folder / name for folder in places if (folder / name).is_file()), places[0] / name)
            own, twice = objects.pop(number, []), ids[number] > 1 or files[name] > 1
            bad = next((each["category"] for each in own if isinstance(each["category"], InvalidRecord)), None)
            bad = InvalidRecord(f"two images have the id {number} or the file_name {name!r}") if twice else bad
            yield row, bad or {"image": str(place), "objects": own, "size": size}
    except (KeyError, TypeError, AttributeError) as error:
        there = f"an object with {', '.join(map(str, list(content)[:8]))}, or an entry without {error}"
        raise ValueError(f"{path} is {there}; expected a list of records, or COCO's {', '.join(COCO)}") from None
    for row, number in enumerate(objects, start=len(content["images"]) + 1):
        yield row, InvalidRecord(f"annotations of the image with id {number}, which is not in 'images'")


def read_parquet(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read the rows of parquet; ValueError for a damaged file."""
    try:
        batches = pq.ParquetFile(path).iter_batches(1000)
        yield from enumerate((record for batch in batches for record in batch.to_pylist()), start=1)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no whole parquet file ({' '.join(str(error).split())}); fetch it again") from None


TABLES: dict[str, Callable[[Path, str, str], Iterator[Row]]] = {
    ".jsonl": read_jsonl, ".ndjson": read_jsonl, ".json": read_json, ".csv": read_csv, ".tsv": read_csv,
    ".parquet": read_parquet,
}  # fmt: skip
READERS = {**TABLES, ".txt": read_text}
FORMATS = {**READERS, **dict.fromkeys(IMAGES, lambda path, *_: iter([(1, {"image": str(path.absolute())})]))}
