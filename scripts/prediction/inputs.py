"""Read the input of a model: a text from the shell, files, folders and tables, whose rows stay as they are."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.scripts.common.words import did_you_mean, either
from qkv.scripts.data.columns import LOCATED, NAMES, media_of, stored_media_of
from qkv.scripts.data.examples import InvalidRecord, Record
from qkv.scripts.data.readers import FORMATS, TABLES, UTF_8, read_rows
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import Source

STANDARD_INPUT = "-"
LOOKED_AT = 100  # rows, to tell the kind of a column
NOUNS = {"text": "text", "image": "picture", "audio": "recording"}
MEDIA_NAMES = {"image": ("image", "file_name"), "audio": ("audio", "file_name")}


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
    if not exists(path):
        return shell_text(given, source, options)
    if path.is_dir():
        return read_folder(path, medium, options)
    if path.suffix.lower() in (*TABLES, *([".txt"] if medium == "text" else [])):
        return read_table(path, options)
    if path.suffix.lower() in LOCATED.get(medium, ()):
        return of_values(medium, [path.name], path.parent)
    takes = [*TABLES, *LOCATED.get(medium, (".txt",))]
    raise ValueError(f"{path} is no input for {source.task}; the files that are read end in {either(takes)}")


def exists(path: Path) -> bool:
    """Tell whether there is a file or folder; a text may be too long for the name of one."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def shell_text(given: str, source: Source, options: Options) -> Table:
    """Return a text as a table of one row; ValueError where it looks like a file that is not there."""
    suffix = Path(given).suffix.lower() if len(given.split()) == 1 else ""
    if source.medium != "text" or suffix in FORMATS:
        raise ValueError(f"there is no file or folder {given!r}; give a {NOUNS[source.medium]}, a folder or a table")
    if not given.strip():
        raise ValueError('the text is empty; write for example "Once upon a time"')
    table = of_values("text", [given], Path())
    if "pair" in options:
        table.columns.append("pair")
        table.rows[0]["pair"] = options.pop("pair")
    return table


def of_values(column: str, values: Sequence[Any], folder: Path) -> Table:
    """Return a table of one column; ValueError for no values."""
    if not values:
        raise ValueError(f"there is no {column} in the input; give one or more")
    return Table([column], [{column: value} for value in values], [None] * len(values), folder)


def read_folder(folder: Path, medium: str, options: Options) -> Table:
    """Read the table of a folder, or its pictures or recordings in the order of their names."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    tables = [path for path in files if path.suffix.lower() in TABLES]
    if len(tables) == 1:
        return read_table(tables[0], options)
    if tables:
        names = ", ".join(str(path) for path in tables[:4])
        raise ValueError(f"{folder} has {len(tables)} tables; name one of them: {names}")
    endings = LOCATED.get(medium, (".txt",))
    own = [path for path in files if path.suffix.lower() in endings]
    if not own:
        raise ValueError(f"{folder} holds no input: no table, and no file that ends in {either(list(endings))}")
    if medium == "text":
        return of_values("text", [path.read_text(encoding=options.get("encoding", UTF_8)) for path in own], folder)
    return of_values(medium, [path.relative_to(folder).as_posix() for path in own], folder)


def read_table(path: Path, options: Options) -> Table:
    """Read the rows of a file with their values as they are, of text its lines; ValueError where none can be read."""
    read = [record for _, record in read_rows(path, "line", options.get("encoding", UTF_8))]
    reasons = [str(record) if isinstance(record, InvalidRecord) else None for record in read]
    if all(reasons):
        raise ValueError(f"{path} holds no row that can be read" + (f"; the first: {reasons[0]}" if reasons else ""))
    rows = [{} if isinstance(record, InvalidRecord) else dict(record) for record in read]
    return Table(list(dict.fromkeys(name for row in rows for name in row)), rows, reasons, path.parent, path)


def column_of(table: Table, role: str, source: Source, options: Options) -> str:
    """Return the column of the inputs: the one that is asked for, that the run learned from, or that is called so.

    ValueError where there is none, with the columns there are and the line to type.
    """
    medium = source.medium
    if role in options:
        return known(table, options[role], role)
    usual = MEDIA_NAMES.get(medium) or [name for role in ("text", "source", "words", "chain") for name in NAMES[role]]
    learned = source.columns.get("text", "").partition(".")[0] if medium == "text" else ""
    lower = {name.lower(): name for name in reversed(table.columns)}
    named = [name for name in (learned, *(lower.get(name, "") for name in usual)) if name in table.columns]
    held = [name for name in table.columns if medium != "text" and holds(table, name, medium)]
    candidates = [*named, *held, *(table.columns if len(table.columns) == 1 else ())]
    if not candidates:
        raise ValueError(
            f"{table.path or 'the input'} has the columns {', '.join(table.columns)}; say which one holds the "
            f"{NOUNS[medium]}s, as in {medium}={table.columns[-1]}"
        )
    return candidates[0]


def holds(table: Table, name: str, medium: str) -> bool:
    """Return whether a column names files of a medium, or stores them."""
    values = [row[name] for row in table.rows[:LOOKED_AT] if row.get(name) not in (None, "")]
    return bool(values) and all(medium in (media_of(value), stored_media_of(value)) for value in values)


def known(table: Table, name: str, role: str) -> str:
    """Return a column that is asked for; ValueError where there is none."""
    if name not in table.columns:
        where = table.path or "the input"
        raise ValueError(f"{role}={name}: {where} has no such column; {did_you_mean(name, table.columns, 'columns')}")
    return name
