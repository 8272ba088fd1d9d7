"""Read the input of a model: a text from the shell, files, folders and tables, whose rows stay as they are."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.phases import say
from qkv.scripts.common.words import did_you_mean, either
from qkv.scripts.data.columns import LOCATED, NAMES, media_of
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.formats.encodings import UTF_8
from qkv.scripts.data.formats.parallel_texts import has_language
from qkv.scripts.data.formats.readers import FORMATS, TABLES, read_rows
from qkv.scripts.data.local_files import files_below
from qkv.scripts.data.read_report import counted
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import ANSWERS, Source

STANDARD_INPUT = "-"
LOOKED_AT = 100  # rows, to tell the kind of a column
Rows = Callable[[], Iterable[Any]]  # are read anew with each call, so that few are in memory at a time
# The usual names of columns, by medium, and of contexts.
USUAL = {
    "text": [name for role in ("text", "source", "words", "chain", "dialogue") for name in NAMES[role]],
    ANSWERS: [*NAMES["context"], "text"],
    "image": ["image", "file_name"],
    "audio": ["audio", "file_name"],
}


@dataclass
class Table:
    """Rows in their order with the values of the file, or why one cannot be used, and the folder that paths start from.

    `path` is the table that they are read from, if any.
    """

    columns: list[str]
    rows: Rows
    count: int
    folder: Path
    path: Path | None = None


def read_input(given: str, source: Source, options: Options) -> Table:
    """Read an input for a model; ValueError where there is none, or it is of no kind that the model takes."""
    path, medium = Path(given).expanduser(), source.medium
    if given == STANDARD_INPUT:
        return of_values("text", sys.stdin.read().splitlines(), Path())
    if not is_local(str(path)):
        return shell_text(given, medium, options)
    folder = path.parent if path.is_file() else path
    files, left = ([path], Counter[str]()) if path.is_file() else files_below(path)
    names = [each.relative_to(folder).as_posix() for each in files]
    texts = (".txt", path.suffix.lower() if path.is_file() and has_language(path) else ".txt")
    tables = [name for name in names if name.lower().endswith((*TABLES, *texts) if medium == "text" else (*TABLES,))]
    if len(tables) == 1:
        return read_table(folder / tables[0], options)
    if tables:
        raise ValueError(f"{path} has {len(tables)} tables; name one of them: {', '.join(tables[:4])}")
    endings = LOCATED.get(medium, (".txt",))
    if not (named := [name for name in names if name.lower().endswith(endings)]):
        raise ValueError(f"{path} is no input for {source.task}, which reads {either([*TABLES, *endings])}")
    left.update(Path(name).suffix.lower() or name for name in {*names} - {*named})
    if left:
        say(f"{path}: files left out are {counted(left)}")
    return of_values(medium, named, folder)


def shell_text(given: str, medium: str, options: Options) -> Table:
    """Return a text as a table of one row; ValueError where it looks like a file that is not there."""
    suffix = Path(given).suffix.lower() if len(given.split()) == 1 else ""
    if medium != "text" or suffix in FORMATS or not given.strip():
        raise ValueError(f"there is no file or folder {given!r}, and no text; give an input of {medium}, or a table")
    row = {"text": given}
    if "pair" in options:
        row["pair"], options["pair"] = options["pair"], "pair"
    return Table(list(row), lambda: [row], 1, Path())


def of_values(column: str, values: Sequence[Any], folder: Path) -> Table:
    """Return a table of one column; ValueError for no values."""
    if not values:
        raise ValueError(f"there is no {column} in the input; give one or more")
    return Table([column], lambda: ({column: value} for value in values), len(values), folder)


def read_table(path: Path, options: Options) -> Table:
    """Find the columns of a file with values as they are, of text its lines; ValueError where no row can be read."""
    table = Table([], lambda: (row for _, row in read_rows(path, "line", encoding)), 0, path.parent, path)
    columns, encoding, first = dict[str, None](), options.get("encoding", UTF_8), None
    for row in table.rows():
        table.count += 1
        first = first or row
        columns |= {} if isinstance(row, InvalidRecord) else dict.fromkeys(row)
    if not columns:
        raise ValueError(f"{path} holds no row that can be read" + (f"; the first: {first}" if first else ""))
    table.columns = list(columns)
    return table


def column_of(table: Table, source: Source, options: Options) -> str:
    """Return the column of the inputs: by the options, the columns of the run, or a usual name.

    ValueError where there is none, with the columns there are and the line to type.
    """
    medium = source.medium
    if medium in options:
        return known(table, options[medium], medium)
    learned = source.columns.get("messages") or source.columns.get("text", "").partition(".")[0]
    usual = USUAL.get(source.task, USUAL[medium])
    lower = {name.lower(): name for name in reversed(table.columns)}
    names = [learned if medium == "text" else "", *(lower.get(name) for name in usual)]
    named = [name for name in names if name in table.columns]
    held = [name for name in table.columns if medium != "text" and holds(table, name, medium)]
    candidates = [*named, *held, *(table.columns if len(table.columns) == 1 else ())]
    if not candidates:
        raise ValueError(
            f"{table.path or 'the input'} has the columns {', '.join(table.columns)}; say which one holds the "
            f"{medium}, as in {medium}={table.columns[-1]}"
        )
    return str(candidates[0])


def holds(table: Table, name: str, medium: str) -> bool:
    """Return whether a column names files of a medium, or stores them."""
    rows = (row for row in islice(table.rows(), LOOKED_AT) if not isinstance(row, InvalidRecord))
    values = [row[name] for row in rows if row.get(name) not in (None, "")]
    return bool(values) and all(media_of(value) == medium for value in values)


def known(table: Table, name: str, role: str) -> str:
    """Return a column by name; ValueError where there is none."""
    if name not in table.columns:
        where = table.path or "the input"
        raise ValueError(f"{role}={name}: {where} has no such column; {did_you_mean(name, table.columns, 'columns')}")
    return name
