"""Load one split of files, folders and data sets of the Hub as a `datasets` table or stream.

Splits and labels of local files are found here, not by imagefolder, audiofolder or `data_files` patterns: these take an
image `cat/test_1.png` for a test split, a class called `train` for one, leave out `data.jsonl` beside `test.jsonl`, and
need torchcodec for sound.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Audio, ClassLabel, Dataset, DatasetDict, Features, Image, IterableDataset, Value
from datasets.exceptions import DatasetGenerationError
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from qkv.scripts.common.environment import data_name, is_local
from qkv.scripts.common.files import file_hash
from qkv.scripts.common.phases import is_first_process
from qkv.scripts.common.words import did_you_mean, nearest
from qkv.scripts.data.columns import LOCATED, column_types, converted, with_fields
from qkv.scripts.data.examples import ORIGIN, InvalidRecord, Record, attempt
from qkv.scripts.data.formats.encodings import UTF_8
from qkv.scripts.data.formats.readers import IMAGES, read_rows
from qkv.scripts.data.local_files import check_media, ending, files_at, files_below, folder_labels, found_files
from qkv.scripts.recipes.schema import Recipe

# Author, name, then perhaps a configuration and a revision: allenai/c4:en@1588ec4.
HUB = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(:(?P<name>[\w.-]+))?(@(?P<revision>[\w./-]+))?")
SAMPLE = 100  # records that tell the media which parquet stores
SHARDS = 1024  # of a stream of a table, at most
FILE_NAME = "file_name"  # the column that imagefolder and audiofolder read as `image` or `audio`
STORED_SOUND = {"bytes": Value("binary"), "path": Value("string")}  # to write it as Audio, datasets asks for torchcodec
Documents = Literal["line", "paragraph", "file"]
Data: TypeAlias = Dataset | IterableDataset
# A column: its name in the files, its kind, and its type in `datasets`.
Source = tuple[str, str, Any]


def read(
    where: str, *, split: str = "train", streaming: bool = False, documents: Documents = "paragraph",
    columns: Sequence[str] | None = None, encoding: str = UTF_8,
) -> Data:  # fmt: skip
    """Read one split of a file, folder or data set of the Hub.

    Folders of images are their labels; a folder may also be one that `save_to_disk` wrote. Paths in tables are relative
    to the table. Records of files have their origin in columns that begin with an underscore, invalid ones the reason
    in `_invalid`. ValueError for a missing file, split or column.
    """
    if not is_first_process() or not sys.stderr.isatty():  # one bar for all processes, and none in a log
        datasets.disable_progress_bars()
    if not is_local(where):
        ask = partial(datasets.load_dataset, split=split, streaming=streaming)
        return undecoded(ask_hub(where, ask), columns, where)
    files = local_splits(where)
    if split not in files:
        raise ValueError(f"{where} has no {split} split; it has {', '.join(files)}")
    table = files[split] if isinstance(files, DatasetDict) else read_files(files, split, where, documents, encoding)
    data = undecoded(table, columns, where)
    return data.to_iterable_dataset(num_shards=min(SHARDS, len(data))) if streaming else data


def read_split(recipe: Recipe, columns: Sequence[str] | None, split: str = "train", **options: Any) -> Data:
    """Read one split of a recipe's data."""
    data = recipe.data
    return read(data.source, split=split, documents=data.documents, columns=columns, encoding=data.encoding, **options)


def splits(where: str) -> list[str]:
    """Return the splits of a file, folder or data set of the Hub."""
    return list(local_splits(where)) if is_local(where) else ask_hub(where, datasets.get_dataset_split_names)


def local_splits(where: str) -> DatasetDict | dict[str, list[Path]]:
    """Return the splits of a saved data set as tables, and of other folders and files as lists of files."""
    if (Path(where) / "dataset_dict.json").is_file() or (Path(where) / "dataset_info.json").is_file():
        try:
            saved = datasets.load_from_disk(where)
        except IndexError:  # which datasets raises for a table without rows
            raise ValueError(f"{where} has no records, or a split of it has none; save it again with some") from None
        return saved if isinstance(saved, DatasetDict) else DatasetDict({"train": saved})
    return found_files(Path(where))[0]


def read_files(files: Mapping[str, list[Path]], split: str, where: str, documents: str, encoding: str) -> Dataset:
    """Read the files of a split as a table, which datasets keeps until one of them changes."""
    paths, labels, beside = files[split], dict[str, str | None](), set[Path]()
    if ending(paths[0]) in IMAGES:
        folders = folder_labels(files, Path(where))
        columns: dict[str, Source] = {"image": ("image", "image", Image(decode=False))}
        if folders:
            columns["label"] = "label", "string", ClassLabel(names=sorted({*folders.values()}))
            labels = {str(path): folders.get(path) for path in paths}
    else:
        columns = columns_of(paths, documents, encoding)
        if any(kind in LOCATED for _, kind, _ in columns.values()):
            beside = {each for folder in {path.parent for path in paths} for each in files_below(folder)[0]}
        beside |= {each for path in paths for each in files_at(path)}
    kinds = {name: (old, kind) for name, (old, kind, _) in columns.items()}
    features = {name: kind for name, (_, _, kind) in columns.items()}
    known = Features(features | {name: Value(kind) for name, kind in ORIGIN.items()})
    arguments = {"paths": list(map(str, paths)), "kinds": kinds, "labels": labels, "documents": documents,
                 "encoding": encoding, "stamp": stamp({*paths, *beside})}  # fmt: skip
    try:
        table = Dataset.from_generator(table_rows, features=known, gen_kwargs=arguments, split=split)
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None
    if Path(where).is_dir() and not LOCATED.keys() & columns.keys():
        check_media(Path(where), len(table))
    return table


def columns_of(paths: Sequence[Path], documents: str, encoding: str) -> dict[str, Source]:
    """Return the columns of files; a column of images or recordings is renamed `image` or `audio`."""
    records, stored = valid_records(paths, documents, encoding), dict[str, Any]()
    if ending(paths[0]) == ".parquet":
        stored, records = stored_schema(paths), islice(records, SAMPLE)
    columns: dict[str, Source] = {}
    for name, kind in column_types(records, stored).items():
        feature = stored[name] if name in stored else Value("string" if kind in LOCATED else kind)
        feature = Image(decode=False) if kind == "image" else STORED_SOUND if isinstance(feature, Audio) else feature
        columns[name] = name, "any" if stored and kind not in LOCATED else kind, feature
    for medium in LOCATED:
        called = [name for name, (_, kind, _) in columns.items() if kind == medium]
        if called and medium not in called:
            columns[medium] = columns.pop(FILE_NAME if FILE_NAME in called else called[0])
    return columns


def valid_records(paths: Sequence[Path], documents: str, encoding: str) -> Iterator[Record]:
    """Yield the valid records; ValueError where there are none."""
    invalid, count = "", 0
    for path in paths:
        for row, record in read_rows(path, documents, encoding):
            if isinstance(record, InvalidRecord):
                invalid = invalid or f"row {row}: {record}"
            else:
                count += 1
                yield record
    if not count:
        raise ValueError(f"{paths[0]} has no records that can be read; {invalid or 'give another file'}")


def stored_schema(paths: Sequence[Path]) -> Features:
    """Return the columns of parquet files; types that differ between files are widened. ValueError where none fits."""
    try:
        schema = pa.unify_schemas([pq.read_schema(path) for path in paths], promote_options="permissive")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{paths[0]} cannot be read with the files beside it ({reason}); make it again") from None
    return Features.from_arrow_schema(schema)


def table_rows(
    paths: list[str], kinds: dict[str, tuple[str, str]], labels: dict[str, str | None], stamp: str, **how: str
) -> Iterator[Record]:
    """Yield every record with its origin; of an invalid one `_invalid` has the reason, and its columns are None."""

    def values(record: Record | InvalidRecord, path: str) -> Record:
        if isinstance(record, InvalidRecord):
            raise record
        own = with_fields(record) | ({"label": labels[path]} if labels else {})
        return {name: converted(own.get(old), kind, Path(path).parent) for name, (old, kind) in kinds.items()}

    for path in paths:
        for row, record in read_rows(path, **how):
            made = attempt(values, record, path)
            reason = str(made) if isinstance(made, InvalidRecord) else None
            columns = dict.fromkeys(kinds) if isinstance(made, InvalidRecord) else made
            yield {**columns, "_file": path, "_row": row, "_invalid": reason}


def stamp(paths: Iterable[Path]) -> str:
    """Hash the names, sizes and times of files; copying programs keep the first of the times alone."""
    states = [(str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns)
              for path in sorted(paths) for state in [path.stat()]]  # fmt: skip
    return sha256(repr(states).encode()).hexdigest()


def ask_hub(where: str, ask: Callable[..., Any]) -> Any:
    """Ask the Hub about a data set; ValueError where it is not found."""
    parts, path = HUB.fullmatch(where), Path(where)
    close = nearest(path.name, [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else [])
    hint = f"did you mean {str(path.with_name(close))!r}?" if close else "give a path, or a name such as author/name"
    if parts is None:
        raise ValueError(f"data={where!r} is no file, folder or data set of the Hub; {hint}")
    try:
        return ask(parts["path"], parts["name"], revision=parts["revision"])
    except (FileNotFoundError, ConnectionError, HfHubHTTPError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"data={where!r} is no file or folder here, nor got from the Hub ({reason}); {hint}") from None


def undecoded(data: Data, columns: Sequence[str] | None, where: str) -> Data:
    """Select columns, with images and sound as stored: a damaged one must not end the reading."""
    if data.features is None:  # a stream of the Hub that must be read to know them
        return data
    for name, kind in {"image": Image, "audio": Audio}.items():
        called = [other for other, feature in data.features.items() if isinstance(feature, kind)]
        data = data.rename_column(called[0], name) if called and name not in data.features else data
    known = [name for name, feature in data.features.items() if not isinstance(feature, Value)]
    nested = [name for name in columns or () if name not in data.features and name.partition(".")[0] in known]
    if nested:  # the English of a column of translations
        data = data.map(lambda record: {name: with_fields(record).get(name) for name in nested})
    data = data.select_columns(select(data.features, columns, where))
    for name, feature in data.features.items():
        if isinstance(feature, Image | Audio):
            data = data.cast_column(name, type(feature)(decode=False))
    return data


def select(names: Iterable[str], columns: Sequence[str] | None, where: str) -> list[str]:
    """Select columns and the columns of the origin; ValueError for a missing one."""
    known = list(names)
    for name in columns or ():
        if name not in known:
            raise ValueError(f"{where} has no column {name!r}; {did_you_mean(name, known, 'columns')}")
    return [name for name in known if columns is None or name in (*columns, *ORIGIN)]


def public_names(where: str) -> dict[str, Any]:
    """Return name, title and source of data that are no example data, as records and cards have them."""
    page = "" if is_local(where) else "https://huggingface.co/datasets/" + re.split("[:@]", where)[0]
    return {"name": data_name(where), "title": data_name(where), "source": page}


def identity(where: str) -> str:
    """Return an identifier of data: a commit of the Hub, or a hash over the names and contents of files."""
    root, digest = Path(where), sha256()
    if not root.exists():
        return str(ask_hub(where, commit))
    for file in files_at(root):
        digest.update(f"{os.path.relpath(file, root)} {file_hash(file)}\n".encode())
    return f"{root.name} {digest.hexdigest()}"


def commit(path: str, name: str | None, revision: str | None) -> str:
    """Return a data set of the Hub with the commit that a revision is now."""
    return f"{path}{f':{name}' if name else ''}@{HfApi().dataset_info(path, revision=revision).sha}"
