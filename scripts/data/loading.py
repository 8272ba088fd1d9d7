"""Where are the data? Files, folders and data sets of the Hub, found by `data=` and read as datasets has them."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow.parquet as pq
from datasets import Audio, ClassLabel, Dataset, DatasetDict, Features, Image, IterableDataset, Value
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from qkv.scripts.data.columns import kinds, records
from qkv.scripts.data.readers import FORMATS, ORIGIN, PICTURES, Piece, format_of
from qkv.scripts.recipes.schema import meant

# How a split is called in names of files and folders.
NAMES = {"validation": ("validation", "valid", "val", "dev"), "test": ("test", "eval"), "train": ("train", "training")}
# Author, name, then perhaps a configuration and a revision: allenai/c4:en@1588ec4.
HUB = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(:(?P<name>[\w.-]+))?(@(?P<revision>[\w./-]+))?")
# Bytes of a file that stand for it.
BEGINNING = 2**16
Documents = Literal["line", "paragraph", "file"]
Data: TypeAlias = Dataset | IterableDataset


def read(
    where: str, *, split: str | None = None, streaming: bool = False, documents: Documents = "paragraph",
    columns: Sequence[str] | None = None,
) -> Data:  # fmt: skip
    """One split (`train` where none is named) of a file, folder or data set of the Hub.

    Files are .jsonl, .csv, .parquet, .txt (`documents` says what one is) and pictures, whose folders are their labels;
    a folder may also be what `save_to_disk` wrote. Splits are files or folders with train, validation or test in their
    names. Every record of a file has its origin in columns that begin with an underscore, and bad ones are among them,
    with what is wrong in `_fault`: see `complaint.py`. ValueError for what is not there, or lacks a split or a column.
    """
    wanted = split or "train"
    if int(os.environ.get("RANK", 0)):  # one process shows for all how far it is
        datasets.disable_progress_bars()
    if not Path(where).exists():
        return plain(from_hub(where, wanted, streaming=streaming), columns, where)
    if saved(Path(where)):
        return plain(from_disk(where, wanted, streaming=streaming), columns, where)
    files = splits_of(where)
    if wanted not in files:
        raise ValueError(f"{where} has no {wanted} split; it has {', '.join(files)}")
    pieces = pieces_of(files[wanted], documents)
    if files[wanted][0].suffix.lower() in PICTURES:
        pieces, features = labelled(pieces, files, Path(where))
        found = dict.fromkeys(features, "any")
    else:
        found, features = tabular(pieces)
    features = select(features, columns, where)
    arguments = {"pieces": pieces, "columns": {name: found[name] for name in features}}
    features = Features({**features, **{name: Value(kind) for name, kind in ORIGIN.items()}})
    make = IterableDataset.from_generator if streaming else Dataset.from_generator
    return make(records, features=features, gen_kwargs=arguments, split=wanted)


def splits(where: str) -> list[str]:
    """The splits of a file, folder or data set of the Hub."""
    if not Path(where).exists():
        return hub(where, datasets.get_dataset_split_names)
    if saved(Path(where)):
        found = datasets.load_from_disk(where)
        return list(found) if isinstance(found, DatasetDict) else ["train"]
    return list(splits_of(where))


def saved(folder: Path) -> bool:
    """Is the folder one that datasets wrote?"""
    return (folder / "dataset_dict.json").is_file() or (folder / "dataset_info.json").is_file()


def from_disk(where: str, split: str, *, streaming: bool) -> Data:
    """A split of what `save_to_disk` wrote."""
    found = datasets.load_from_disk(where)
    if not isinstance(found, DatasetDict):
        found = DatasetDict({"train": found})
    if split not in found:
        raise ValueError(f"{where} has no {split} split; it has {', '.join(found)}")
    # In parts, for several readers.
    return found[split].to_iterable_dataset(num_shards=min(64, len(found[split]))) if streaming else found[split]


def from_hub(where: str, split: str, *, streaming: bool) -> Data:
    """A split of a data set of the Hub, at the revision named after an @."""

    def load(path: str, name: str | None = None, revision: str | None = None) -> Data:
        return datasets.load_dataset(path, name, revision=revision, split=split, streaming=streaming)

    return hub(where, load)


def hub(where: str, ask: Callable[..., Any]) -> Any:
    """What a data set of the Hub answers; ValueError in one sentence where there is none of that name."""
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
    """What is beside a path that is not there, and called much like it."""
    beside = [found.name for found in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, beside, n=1)
    return f"did you mean {str(path.with_name(close[0]))!r}?" if close else "give a path, or a name such as author/name"


def splits_of(where: str) -> dict[str, list[Path]]:
    """{split: its files} of a file or folder; ValueError where none is of a known kind, or two kinds are mixed."""
    root = Path(where)
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    hidden = [any(part.startswith(".") for part in path.relative_to(root).parts) for path in files]
    files = [path for path, skip in zip(files, hidden, strict=True) if not skip and path.suffix.lower() in FORMATS]
    if not files:
        raise ValueError(f"{where} holds no data: the files that are read end in {', '.join(FORMATS)}")
    named: dict[str | None, list[Path]] = {}
    for path in files:
        named.setdefault(split_name(path, root), []).append(path)
    unnamed = named.pop(None, [])
    found: dict[str, list[Path]] = {name: named[name] for name in ("train", "validation", "test") if name in named}
    found = found if "train" in found or not unnamed else {"train": unnamed, **found}
    for split, paths in found.items():
        refuse_mixture(f"the {split} split of {where}", paths)
    return found


def split_name(path: Path, root: Path) -> str | None:
    """The split that a file belongs to by its folder, or its own name where that is no number of a picture."""
    folders = [folder.lower() for folder in path.relative_to(root).parent.parts[:1]]
    stem = [] if path.suffix.lower() in PICTURES else re.split("[^a-z]+", path.stem.lower())
    return next((split for word in (*folders, *stem) for split, names in NAMES.items() if word in names), None)


def refuse_mixture(what: str, paths: Sequence[Path]) -> None:
    """Raise ValueError for files that are not all read alike."""
    suffixes = {suffix: FORMATS[suffix] for suffix in sorted({path.suffix.lower() for path in paths})}
    if len(set(suffixes.values())) > 1:
        raise ValueError(f"{what} mixes {' and '.join(suffixes)}; give the files of one kind")


def pieces_of(paths: Sequence[Path], documents: Documents) -> list[Piece]:
    """The files of a split in pieces."""
    return [piece for path in paths for piece in format_of(str(path)).cut(path, documents)]


def labelled(pieces: Sequence[Piece], files: dict[str, list[Path]], root: Path) -> tuple[list[Piece], Features]:
    """Pictures with the numbers of their labels: the folders they lie in, of all splits, by name."""
    labels = sorted({label for paths in files.values() for path in paths if (label := label_of(path, root))})
    features = Features({"image": Image(decode=False)} | ({"label": ClassLabel(names=labels)} if labels else {}))
    found = [label_of(Path(piece.path), root) for piece in pieces]
    numbers = [labels.index(label) if label else None for label in found]
    return [replace(piece, label=label) for piece, label in zip(pieces, numbers, strict=True)], features


def label_of(path: Path, root: Path) -> str | None:
    """The folder of a picture, below that of its split."""
    folders = path.relative_to(root).parent.parts
    return folders[-1] if len(folders) > (split_name(path, root) is not None) else None


def tabular(pieces: Sequence[Piece]) -> tuple[dict[str, str], Features]:
    """What the columns of files hold, in our words and in those of datasets."""
    if Path(pieces[0].path).suffix.lower() == ".parquet":
        features = Features.from_arrow_schema(pq.read_schema(pieces[0].path))
        plain = {name: undecoded(kind) for name, kind in features.items()}
        return dict.fromkeys(plain, "any"), Features(plain)
    found = kinds(pieces)
    return found, Features({name: Value("string" if kind == "json" else kind) for name, kind in found.items()})


def plain(data: Data, columns: Sequence[str] | None, where: str) -> Data:
    """The wanted columns, with pictures and sound as stored: one that is damaged must not end the reading."""
    features = data.features
    if features is None:  # a stream of the Hub that must be read to know them
        return data
    if columns is not None:
        data = data.select_columns(list(select(features, columns, where)))
    for name, kind in data.features.items():
        if isinstance(kind, Image | Audio):
            data = data.cast_column(name, type(kind)(decode=False))
    return data


def undecoded(kind: Any) -> Any:
    """A column's kind as it is stored; to write sound of its own kind, datasets would ask for torchcodec."""
    if isinstance(kind, Image):
        return Image(decode=False)
    return {"bytes": Value("binary"), "path": Value("string")} if isinstance(kind, Audio) else kind


def select(features: Features, columns: Sequence[str] | None, where: str) -> Features:
    """The wanted columns; ValueError for one that is not there."""
    for name in columns or ():
        if name not in features:
            raise ValueError(f"{where} has no column {name!r}; {meant(name, list(features), 'columns')}")
    return Features({name: kind for name, kind in features.items() if columns is None or name in columns})


def called(where: str) -> str:
    """How data are spoken of where others read: a file or folder by its name alone, and not by its place here."""
    return Path(where).resolve().name if Path(where).exists() else where


def identity(where: str) -> str:
    """What says which data these are: a commit of the Hub, or a hash over names, sizes and beginnings of files."""
    path = Path(where)
    if not path.exists():
        return hub(where, commit)
    files = [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())
    digest = sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(f"{file.relative_to(path)} {file.stat().st_size}".encode() + opened.read(BEGINNING))
    return f"{path.name} {digest.hexdigest()}"


def commit(path: str, name: str | None, revision: str | None) -> str:
    """A data set of the Hub at the commit that a revision is now."""
    found = HfApi().dataset_info(path, revision=revision).sha
    return f"{path}{f':{name}' if name else ''}@{found}"
