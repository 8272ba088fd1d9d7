"""Load one split of files, folders and data sets of the Hub as a `datasets` table or stream.

Splits and labels of local files are found here, not by `data_files` patterns, imagefolder or audiofolder: these take
an image `cat/test_1.png` for a test split, leave out `data.jsonl` beside `test.jsonl`, and need torchcodec for sound.
"""

import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow.parquet as pq
from datasets import Audio, Dataset, DatasetDict, Features, Image, IterableDataset, Value
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from qkv.scripts.common.environment import data_name, local_files
from qkv.scripts.common.files import remembered_hash
from qkv.scripts.common.phases import is_first_process
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.column_types import infer_types, media_of, media_types, records, sample, stored_media_of
from qkv.scripts.data.encoding import UTF_8, check_encoding
from qkv.scripts.data.local_files import pieces_of, split_files, with_labels, with_stamps
from qkv.scripts.data.pieces import ORIGIN, Piece
from qkv.scripts.data.readers import IMAGES
from qkv.scripts.recipes.schema import Recipe

# Author, name, then perhaps a configuration and a revision: allenai/c4:en@1588ec4.
HUB = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(:(?P<name>[\w.-]+))?(@(?P<revision>[\w./-]+))?")
Documents = Literal["line", "paragraph", "file"]
PATHS = ("file_name",)  # columns that imagefolder and audiofolder read as `image` or `audio`
FILES = {"image": Image(decode=False), "audio": Value("string")}  # how files are stored that tables name
MEDIA: dict[type, str] = {Image: "image", Audio: "audio"}
Data: TypeAlias = Dataset | IterableDataset


def read(
    where: str, *, split: str = "train", streaming: bool = False, documents: Documents = "paragraph",
    columns: Sequence[str] | None = None, encoding: str = UTF_8,
) -> Data:  # fmt: skip
    """Read one split of a file, folder or data set of the Hub.

    Files are .jsonl, .json, .csv, .tsv, .parquet, .txt (`documents` says what one is), two .txt files joined by a
    comma, whose lines are `source` and `target`, and images, whose folders are their labels; a folder may also be what
    `save_to_disk` wrote. Tables may name images or recordings by paths relative to the table. Splits are files or
    folders with train, validation or test in their names. Text is in the `encoding`, or that of its byte order mark.
    Every record of a file has its origin in columns that begin with an underscore, and invalid ones are among them,
    with the reason in `_invalid`: see `validation.py`. ValueError for what is not there, or lacks a split or a column.
    """
    check_encoding(encoding)
    if not is_first_process() or not sys.stderr.isatty():  # one bar for all processes, and none in a log
        datasets.disable_progress_bars()
    if not local_files(where):
        return undecoded(from_hub(where, split, streaming=streaming), columns, where)
    files: Any = local_splits(where)
    if split not in files:
        raise ValueError(f"{where} has no {split} split; it has {', '.join(files)}")
    if isinstance(files, DatasetDict):
        saved = files[split]
        # A stream in shards, for several readers.
        saved = saved.to_iterable_dataset(num_shards=min(64, len(saved))) if streaming else saved
        return undecoded(saved, columns, where)
    pieces = pieces_of(local_files(where), files[split], documents, encoding)
    if files[split][0].suffix.lower() in IMAGES:
        pieces, features = with_labels(pieces, files, Path(where))
        types, sources = dict.fromkeys(features, "any"), dict[str, str]()
    else:
        types, features, sources = table_types(pieces)
        pieces = with_stamps(pieces) if set(types.values()) & FILES.keys() else pieces
    features = select(features, columns, where)
    arguments = {"pieces": pieces, "types": {name: types[name] for name in features}, "sources": sources}
    features = Features({**features, **{name: Value(kind) for name, kind in ORIGIN.items()}})
    make = IterableDataset.from_generator if streaming else Dataset.from_generator
    return make(records, features=features, gen_kwargs=arguments, split=split)


def read_split(recipe: Recipe, columns: Sequence[str] | None, split: str = "train", *, streaming: bool = False) -> Data:
    """Read one split of a recipe's data, as it says how."""
    data = recipe.data
    return read(
        data.source, split=split, streaming=streaming, documents=data.documents, columns=columns, encoding=data.encoding
    )


def splits(where: str) -> list[str]:
    """Return the splits of a file, folder or data set of the Hub."""
    if not local_files(where):
        return ask_hub(where, datasets.get_dataset_split_names)
    return list(local_splits(where))


def local_splits(where: str) -> DatasetDict | dict[str, list[Path]]:
    """Return the splits of what `save_to_disk` wrote as tables, those of another folder or a file as lists of files."""
    if (Path(where) / "dataset_dict.json").is_file() or (Path(where) / "dataset_info.json").is_file():
        try:
            saved = datasets.load_from_disk(where)
        except IndexError:  # which datasets raises for a table without rows
            raise ValueError(f"{where} has no records, or a split of it has none; save it again with some") from None
        return saved if isinstance(saved, DatasetDict) else DatasetDict({"train": saved})
    return split_files(local_files(where))


def from_hub(where: str, split: str, *, streaming: bool) -> Data:
    """Read a split of a data set of the Hub, at the revision named after an @."""

    def load(path: str, name: str | None = None, revision: str | None = None) -> Data:
        return datasets.load_dataset(path, name, revision=revision, split=split, streaming=streaming)

    return ask_hub(where, load)


def ask_hub(where: str, ask: Callable[..., Any]) -> Any:
    """Ask the Hub about a data set; ValueError in one sentence where there is none of that name."""
    parts = HUB.fullmatch(where)
    if parts is None:
        raise ValueError(f"data={where!r} is no file, folder or data set of the Hub; {nearest(Path(where))}")
    try:
        return ask(parts["path"], parts["name"], revision=parts["revision"])
    except (FileNotFoundError, ConnectionError, HfHubHTTPError) as error:
        reason = str(error).partition("\n")[0]
        hint = nearest(Path(where))
        raise ValueError(f"data={where!r} is no file or folder here, nor got from the Hub ({reason}); {hint}") from None


def nearest(path: Path) -> str:
    """Suggest what lies beside a missing path under a similar name."""
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, beside, n=1)
    return f"did you mean {str(path.with_name(close[0]))!r}?" if close else "give a path, or a name such as author/name"


def table_types(pieces: Sequence[Piece]) -> tuple[dict[str, str], Features, dict[str, str]]:
    """Return the types of the columns of files, in our words and in those of datasets, and {new name: old name}."""
    stored = dict[str, str]()
    if Path(pieces[0].path).suffix.lower() == ".parquet":
        schema = Features.from_arrow_schema(pq.read_schema(pieces[0].path))
        features: dict[str, Any] = {name: stored_type(kind) for name, kind in schema.items()}
        rows = sample(pieces)
        media, stored = media_types(rows, media_of), media_types(rows, stored_media_of)
        types = dict.fromkeys(features, "any") | media
        features |= {name: Image(decode=False) for name, kind in stored.items() if kind == "image"}
        stored |= {name: kind for name, feature in schema.items() if (kind := MEDIA.get(type(feature)))}
    else:
        types = media = infer_types(pieces)
        plain = {name: "string" if kind == "json" else kind for name, kind in types.items() if kind not in FILES}
        features = {name: Value(kind) for name, kind in plain.items()}
    features |= {name: FILES[kind] for name, kind in media.items() if kind in FILES}
    kinds = types | stored
    files = [name for name in kinds if kinds[name] in FILES and kinds[name] not in kinds]
    sources = {kinds[name]: name for name in sorted(reversed(files), key=lambda name: name in PATHS)}
    for new, old in sources.items():
        types[new], features[new] = types.pop(old), features.pop(old)
    return types, Features(features), sources


def stored_type(kind: Any) -> Any:
    """Return a column's type as it is stored; to write sound of its own type, datasets asks for torchcodec."""
    if isinstance(kind, Image):
        return Image(decode=False)
    return {"bytes": Value("binary"), "path": Value("string")} if isinstance(kind, Audio) else kind


def undecoded(data: Data, columns: Sequence[str] | None, where: str) -> Data:
    """Select columns, with images and sound as stored: a damaged one must not end the reading."""
    if data.features is None:  # a stream of the Hub that must be read to know them
        return data
    for kind, name in MEDIA.items():
        called = [other for other, feature in data.features.items() if isinstance(feature, kind)]
        data = data.rename_column(called[0], name) if called and name not in data.features else data
    if columns is not None:
        data = data.select_columns(list(select(data.features, columns, where)))
    for name, kind in data.features.items():
        if isinstance(kind, Image | Audio):
            data = data.cast_column(name, type(kind)(decode=False))
    return data


def select(features: Features, columns: Sequence[str] | None, where: str) -> Features:
    """Select columns; ValueError for one that is not there."""
    for name in columns or ():
        if name not in features:
            raise ValueError(f"{where} has no column {name!r}; {did_you_mean(name, list(features), 'columns')}")
    return Features({name: kind for name, kind in features.items() if columns is None or name in columns})


def public_names(where: str) -> dict[str, Any]:
    """Return name, title and source of data that are no example data, as records and cards have them."""
    page = "" if local_files(where) else "https://huggingface.co/datasets/" + re.split("[:@]", where)[0]
    return {"name": data_name(where), "title": data_name(where), "source": page}


def identity(where: str) -> str:
    """Return what tells data apart: a commit of the Hub, or a hash over the names and contents of files."""
    given = local_files(where)
    if not given:
        return ask_hub(where, commit)
    digest = sha256()
    for path in given:
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            digest.update(f"{file.relative_to(path)} {remembered_hash(file)}\n".encode())
    return f"{','.join(path.name for path in given)} {digest.hexdigest()}"


def commit(path: str, name: str | None, revision: str | None) -> str:
    """Return a data set of the Hub with the commit that a revision is now."""
    return f"{path}{f':{name}' if name else ''}@{HfApi().dataset_info(path, revision=revision).sha}"
