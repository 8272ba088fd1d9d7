"""Load one split of files, folders and data sets of the Hub as a `datasets` table or stream.

Splits and labels of local files are found here, not by imagefolder, audiofolder or `data_files` patterns: these take an
image `cat/test_1.png` for a test split, a class called `train` for one, leave out `data.jsonl` beside `test.jsonl`, and
need torchcodec for sound.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Audio, Dataset, DatasetDict, Features, Image, IterableDataset, Value
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from qkv.scripts.common.environment import data_name, local_files
from qkv.scripts.common.files import file_hash
from qkv.scripts.common.phases import is_first_process
from qkv.scripts.common.words import did_you_mean, nearest
from qkv.scripts.data.column_types import SAMPLE, column_kinds, records, valid_records, with_fields
from qkv.scripts.data.encoding import UTF_8, check_encoding
from qkv.scripts.data.local_files import pieces_of, split_files, with_labels, with_stamps
from qkv.scripts.data.pieces import ORIGIN, Piece
from qkv.scripts.data.readers import IMAGES
from qkv.scripts.recipes.schema import Recipe

# Author, name, then perhaps a configuration and a revision: allenai/c4:en@1588ec4.
HUB = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(:(?P<name>[\w.-]+))?(@(?P<revision>[\w./-]+))?")
Documents = Literal["line", "paragraph", "file"]
FILE_NAME = "file_name"  # the column that imagefolder and audiofolder read as `image` or `audio`
MEDIA: dict[str, Any] = {"image": Image(decode=False), "audio": Value("string")}  # files that tables name
Data: TypeAlias = Dataset | IterableDataset


def read(
    where: str, *, split: str = "train", streaming: bool = False, documents: Documents = "paragraph",
    columns: Sequence[str] | None = None, encoding: str = UTF_8,
) -> Data:  # fmt: skip
    """Read one split of a file, folder or data set of the Hub.

    Files are .jsonl, .json, .csv, .tsv, .parquet, .txt (`documents` says what one is), two .txt files joined by a
    comma, whose lines are `source` and `target`, and images, whose folders are their labels; a folder may also be one
    that `save_to_disk` wrote. Tables may name images or recordings by paths relative to the table. Splits are files or
    folders with train, validation or test in their names. Text is in the `encoding`, or that of its byte order mark.
    Every record of a file has its origin in columns that begin with an underscore, and invalid ones are among them,
    with the reason in `_invalid`: see `validation.py`. ValueError for a missing file, split or column.
    """
    check_encoding(encoding)
    if not is_first_process() or not sys.stderr.isatty():  # one bar for all processes, and none in a log
        datasets.disable_progress_bars()
    if not local_files(where):
        ask = partial(datasets.load_dataset, split=split, streaming=streaming)
        return undecoded(ask_hub(where, ask), columns, where)
    files: Any = local_splits(where)
    if split not in files:
        raise ValueError(f"{where} has no {split} split; it has {', '.join(files)}")
    if isinstance(files, DatasetDict):
        # A stream in shards, for several readers.
        stream = files[split].to_iterable_dataset(num_shards=min(64, len(files[split])))
        return undecoded(stream if streaming else files[split], columns, where)
    pieces = pieces_of(local_files(where), files[split], documents, encoding)
    return read_pieces(pieces, files, split, where, columns, streaming=streaming)


def read_pieces(
    pieces: Sequence[Piece], files: dict[str, list[Path]], split: str, where: str, columns: Sequence[str] | None, *,
    streaming: bool,
) -> Data:  # fmt: skip
    """Read the pieces of a split as a table or stream."""
    of_images = files[split][0].suffix.lower() in IMAGES
    if of_images:
        pieces, features = with_labels(pieces, files, Path(where))
        kinds, sources = dict.fromkeys(features, "any"), dict[str, str]()
    else:
        kinds, features, sources = table_types(pieces, streaming=streaming)
        pieces = with_stamps(pieces) if set(kinds.values()) & MEDIA.keys() else pieces
    wanted, origin = select(kinds, columns, where), {name: Value(kind) for name, kind in ORIGIN.items()}
    arguments = {"pieces": pieces, "kinds": kinds, "sources": sources}
    if not streaming:
        features = Features({**features, **origin})
        table = Dataset.from_generator(records, features=features, gen_kwargs=arguments, split=split)
        return table.select_columns([*wanted, *ORIGIN])
    arguments["kinds"] = {name: kinds[name] for name in wanted}
    typed = (
        Features({**{name: features[name] for name in wanted}, **origin}) if of_images or is_parquet(pieces) else None
    )
    return IterableDataset.from_generator(records, features=typed, gen_kwargs=arguments, split=split)


def read_split(recipe: Recipe, columns: Sequence[str] | None, split: str = "train", *, streaming: bool = False) -> Data:
    """Read one split of a recipe's data, as it says how."""
    data = recipe.data
    return read(
        data.source, split=split, streaming=streaming, documents=data.documents, columns=columns, encoding=data.encoding
    )


def splits(where: str) -> list[str]:
    """Return the splits of a file, folder or data set of the Hub."""
    return list(local_splits(where)) if local_files(where) else ask_hub(where, datasets.get_dataset_split_names)


def local_splits(where: str) -> DatasetDict | dict[str, list[Path]]:
    """Return the splits of a saved data set as tables, those of another folder or a file as lists of files."""
    if (Path(where) / "dataset_dict.json").is_file() or (Path(where) / "dataset_info.json").is_file():
        try:
            saved = datasets.load_from_disk(where)
        except IndexError:  # which datasets raises for a table without rows
            raise ValueError(f"{where} has no records, or a split of it has none; save it again with some") from None
        return saved if isinstance(saved, DatasetDict) else DatasetDict({"train": saved})
    return split_files(local_files(where))


def table_types(pieces: Sequence[Piece], *, streaming: bool) -> tuple[dict[str, str], Features, dict[str, str]]:
    """Return the kinds of the columns of files, their types in `datasets`, and {new name: old name}.

    The values of all records decide; a stream, which never sees them all, keeps its values as they are.
    """
    features: dict[str, Any] = {}
    some = [] if not streaming and not is_parquet(pieces) else list(islice(valid_records(pieces), SAMPLE))
    if is_parquet(pieces):
        kinds = dict.fromkeys(schema := stored_schema(pieces), "any")
        kinds |= {name: kind for name, kind in column_kinds(some).items() if kind in MEDIA and name in schema}
        features = {name: stored_type(kind) for name, kind in schema.items()}
        kinds |= {name: "image" for name, kind in schema.items() if isinstance(kind, Image)}
        kinds |= {name: "audio" for name, kind in schema.items() if isinstance(kind, Audio)}
    elif streaming:
        kinds = {name: kind if kind in MEDIA else "any" for name, kind in column_kinds(some).items()}
    else:
        kinds = column_kinds(valid_records(pieces))
    features |= {name: Value(kind) for name, kind in kinds.items() if kind not in (*MEDIA, "any")}
    named = [name for name, kind in kinds.items() if kind in MEDIA and not isinstance(features.get(name), dict)]
    features |= {name: MEDIA[kinds[name]] for name in named}
    features |= {name: MEDIA["image"] for name, kind in kinds.items() if kind == "image"}
    files = [name for name in kinds if kinds[name] in MEDIA and kinds[name] not in kinds]
    sources = {kinds[name]: name for name in sorted(reversed(files), key=lambda name: name == FILE_NAME)}
    for new, old in sources.items():
        kinds[new], features[new] = kinds.pop(old), features.pop(old)
    return kinds, Features(features), sources


def is_parquet(pieces: Sequence[Piece]) -> bool:
    """Tell whether files are parquet."""
    return Path(pieces[0].path).suffix.lower() == ".parquet"


def stored_schema(pieces: Sequence[Piece]) -> Features:
    """Return the columns of parquet files; types that differ between files are widened. ValueError where none fits."""
    schemas = [pq.read_schema(path) for path in dict.fromkeys(piece.path for piece in pieces)]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{pieces[0].path} and the files beside it have other types ({reason})") from None
    return Features.from_arrow_schema(schema)


def stored_type(kind: Any) -> Any:
    """Return a column's type as it is stored; to write sound of its own type, datasets asks for torchcodec."""
    if isinstance(kind, Image):
        return Image(decode=False)
    return {"bytes": Value("binary"), "path": Value("string")} if isinstance(kind, Audio) else kind


def ask_hub(where: str, ask: Callable[..., Any]) -> Any:
    """Ask the Hub about a data set; ValueError in one sentence where there is none of that name."""
    parts = HUB.fullmatch(where)
    if parts is None:
        raise ValueError(f"data={where!r} is no file, folder or data set of the Hub; {hint_for(Path(where))}")
    try:
        return ask(parts["path"], parts["name"], revision=parts["revision"])
    except (FileNotFoundError, ConnectionError, HfHubHTTPError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"data={where!r} is no file or folder here, nor got from the Hub ({reason}); {hint_for(Path(where))}"
        ) from None


def hint_for(path: Path) -> str:
    """Suggest a neighbour of a missing path with a similar name."""
    close = nearest(path.name, [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else [])
    return f"did you mean {str(path.with_name(close))!r}?" if close else "give a path, or a name such as author/name"


def undecoded(data: Data, columns: Sequence[str] | None, where: str) -> Data:
    """Select columns, with images and sound as stored: a damaged one must not end the reading."""
    if data.features is None:  # a stream of the Hub that must be read to know them
        return data
    for name, kind in {"image": Image, "audio": Audio}.items():
        called = [other for other, feature in data.features.items() if isinstance(feature, kind)]
        data = data.rename_column(called[0], name) if called and name not in data.features else data
    nested = [name for name in columns or () if name not in data.features and name.partition(".")[0] in data.features]
    if nested:  # the English of a column of translations
        data = data.map(lambda record: {name: with_fields(record).get(name) for name in nested})
        return data.select_columns(list(columns or ()))
    data = data.select_columns(select(data.features, columns, where))
    for name, feature in data.features.items():
        if isinstance(feature, Image | Audio):
            data = data.cast_column(name, type(feature)(decode=False))
    return data


def select(names: Iterable[str], columns: Sequence[str] | None, where: str) -> list[str]:
    """Select columns; ValueError for a missing one."""
    known = list(names)
    for name in columns or ():
        if name not in known:
            raise ValueError(f"{where} has no column {name!r}; {did_you_mean(name, known, 'columns')}")
    return [name for name in known if columns is None or name in columns]


def public_names(where: str) -> dict[str, Any]:
    """Return name, title and source of data that are no example data, as records and cards have them."""
    page = "" if local_files(where) else "https://huggingface.co/datasets/" + re.split("[:@]", where)[0]
    return {"name": data_name(where), "title": data_name(where), "source": page}


def identity(where: str) -> str:
    """Return an identifier of data: a commit of the Hub, or a hash over the names and contents of files."""
    given = local_files(where)
    if not given:
        return ask_hub(where, commit)
    digest = sha256()
    for path in given:
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            digest.update(f"{file.relative_to(path)} {file_hash(file)}\n".encode())
    return f"{','.join(path.name for path in given)} {digest.hexdigest()}"


def commit(path: str, name: str | None, revision: str | None) -> str:
    """Return a data set of the Hub with the commit that a revision is now."""
    return f"{path}{f':{name}' if name else ''}@{HfApi().dataset_info(path, revision=revision).sha}"
