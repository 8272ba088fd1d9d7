"""Read the input of a model: a text from the shell, files, folders and tables, whose rows stay as they are."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.phases import say
from qkv.scripts.common.words import did_you_mean, either
from qkv.scripts.data.columns import LOCATED, NAMES, media_of
from qkv.scripts.data.examples import InvalidRecord, Record
from qkv.scripts.data.local_files import files_below
from qkv.scripts.data.read_report import counted
from qkv.scripts.data.readers import FORMATS, TABLES, UTF_8, read_rows
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import Source

STANDARD_INPUT = "-"
LOOKED_AT = 100  # rows, to tell the kind of a column
# The usual names of columns, by medium.
USUAL = {
    "text": [name for role in ("text", "source", "words", "chain", "dialogue") for name in NAMES[role]],
    "image": ["image", "file_name"],
    "audio": ["audio", "file_name"],
}


@dataclass
class Table:
    """Rows in their order with the values of the file, why some cannot be used, and the folder that paths start from.

    `path` is the table that they were read from, if any.
    """

    columns: list[str]
    rows: list[Record]
    reasons: list[str | None]
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
    tables = [name for name in names if name.lower().endswith((*TABLES, ".txt") if medium == "text" else (*TABLES,))]
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
    table = of_values("text", [given], Path())
    if "pair" in options:
        table.columns.append("pair")
        table.rows[0]["pair"], options["pair"] = options["pair"], "pair"
    return table


def of_values(column: str, values: Sequence[Any], folder: Path) -> Table:
    """Return a table of one column; ValueError for no values."""
    if not values:
        raise ValueError(f"there is no {column} in the input; give one or more")
    return Table([column], [{column: value} for value in values], [None] * len(values), folder)


def read_table(path: Path, options: Options) -> Table:
    """Read the rows of a file with their values as they are, of text its lines; ValueError where none can be read."""
    read = [record for _, record in read_rows(path, "line", options.get("encoding", UTF_8))]
    reasons = [str(record) if isinstance(record, InvalidRecord) else None for record in read]
    if all(reasons):
        raise ValueError(f"{path} holds no row that can be read" + (f"; the first: {reasons[0]}" if reasons else ""))
    rows = [{} if isinstance(record, InvalidRecord) else record for record in read]
    return Table(list(dict.fromkeys(name for row in rows for name in row)), rows, reasons, path.parent, path)


def column_of(table: Table, source: Source, options: Options) -> str:
    """Return the column of the inputs: by the options, the columns of the run, or a usual name.

    ValueError where there is none, with the columns there are and the line to type.
    """
    medium = source.medium
    if medium in options:
        return known(table, options[medium], medium)
    learned = source.columns.get("messages") or source.columns.get("text", "").partition(".")[0]
    learned = learned if medium == "text" else ""
    lower = {name.lower(): name for name in reversed(table.columns)}
    named = [name for name in (learned, *(lower.get(name) for name in USUAL[medium])) if name in table.columns]
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
    values = [row[name] for row in table.rows[:LOOKED_AT] if row.get(name) not in (None, "")]
    return bool(values) and all(media_of(value) == medium for value in values)


def known(table: Table, name: str, role: str) -> str:
    """Return a column by name; ValueError where there is none."""
    if name not in table.columns:
        where = table.path or "the input"
        raise ValueError(f"{role}={name}: {where} has no such column; {did_you_mean(name, table.columns, 'columns')}")
    return name
