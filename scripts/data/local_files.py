"""Local files of a data set: their splits, the folders that are labels, and the pieces that they are read in."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from datasets import ClassLabel, Features, Image

from qkv.scripts.common.phases import say
from qkv.scripts.data.encoding import UTF_8
from qkv.scripts.data.pieces import Piece
from qkv.scripts.data.readers import DELIMITERS, FORMATS, IMAGES, TABLES, delimiter_of, parallel_piece, stamp_of

# Words for splits in names of files and folders.
SPLITS = {"validation": ("validation", "valid", "val", "dev"), "test": ("test", "eval"), "train": ("train", "training")}
OTHERS, SIDES = ("validation", "test"), ("source", "target")


def split_files(given: Sequence[Path]) -> dict[str, list[Path]]:
    """Return {split: its files} of a file, a folder, or two files that belong together.

    ValueError where no file can be read, or kinds are mixed. Images beside a table are those that it names; other files
    that are left out are said.
    """
    root = given[0]
    files = list(given) if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    if root.is_dir():
        files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    known = [path for path in files if path.suffix.lower() in FORMATS]
    if not known:
        endings = ", ".join(suffix for suffix in FORMATS if suffix not in IMAGES)
        raise ValueError(f"{root} holds no data: give pictures, or files that end in {endings}")
    if root.is_file():
        return {"train": list(given)}
    known = named_or_all(files, known, root)
    nested = has_split_folders(known, root)
    named: dict[str, list[Path]] = {}
    for path in known:
        named.setdefault(split_of(path, root, nested=nested) or "unnamed", []).append(path)
    unnamed = named.pop("unnamed", [])
    announce_left_out(unnamed if "train" in named else [], root)
    by_split = {"train": named.get("train") or unnamed} | {name: named[name] for name in OTHERS if name in named}
    for split, paths in by_split.items():
        suffixes = sorted({path.suffix.lower() for path in paths})
        if len({FORMATS[suffix] for suffix in suffixes}) > 1:
            raise ValueError(f"the {split} split of {root} mixes {' and '.join(suffixes)}; give the files of one kind")
    return {split: paths for split, paths in by_split.items() if paths}


def named_or_all(files: Sequence[Path], known: Sequence[Path], root: Path) -> list[Path]:
    """Return the tables of a folder, which name its images, or all files that can be read; say what is left out."""
    tables = [path for path in known if path.suffix.lower() in TABLES]
    if not tables:
        announce_left_out(set(files) - set(known), root)
        return list(known)
    kept = [path for path in known if path.suffix.lower() not in IMAGES]
    if len(kept) < len(known):
        announce(f"the images of {root} are those that {tables[0].relative_to(root)} names")
    return kept


def announce_left_out(files: Collection[Path], root: Path) -> None:
    """Say which files of a folder are left out, by their endings."""
    if files:
        left = Counter(path.suffix.lower() or path.name for path in files)
        kinds = ", ".join(f"{count} {ending}" for ending, count in sorted(left.items()))
        announce(f"{root}: files left out are {kinds}")


def has_split_folders(files: Sequence[Path], root: Path) -> bool:
    """Tell whether the folders in a folder are splits. Of folders with images all must be: `train` is a class, too."""
    outer = {path.relative_to(root).parts[0].lower() for path in files if path.parent != root}
    classes = any(path.suffix.lower() in IMAGES and path.parent.parent == root for path in files)
    words = {word for names in SPLITS.values() for word in names}
    return outer <= words if classes else bool(outer & words)


def split_of(path: Path, root: Path, *, nested: bool) -> str | None:
    """Return the split that a file belongs to by its folder, or by its own name unless it is an image."""
    words = [path.relative_to(root).parts[0].lower()] if nested and path.parent != root else []
    words += [] if path.suffix.lower() in IMAGES else re.split("[^a-z]+", path.stem.lower())
    return next((split for word in words for split, names in SPLITS.items() if word in names), None)


def with_labels(pieces: Sequence[Piece], files: dict[str, list[Path]], root: Path) -> tuple[list[Piece], Features]:
    """Give images the numbers of their labels: the folders they lie in, of all splits, by name."""
    every = [path for paths in files.values() for path in paths]
    depth = 1 + has_split_folders(every, root) if root.is_dir() else 0

    def label_of(path: Path) -> str | None:
        folders = path.relative_to(root).parent.parts
        return folders[-1] if len(folders) >= depth > 0 else None

    labels = sorted({label for path in every if (label := label_of(path))})
    features = Features({"image": Image(decode=False)} | ({"label": ClassLabel(names=labels)} if labels else {}))
    numbered = []
    for piece in pieces:
        path, label = Path(piece.path), label_of(Path(piece.path))
        numbered.append(replace(piece, path=str(path.absolute()), label=labels.index(label) if label else None))
    return numbered, features


def with_stamps(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces of tables with the state of all files beside them, of which the tables name some."""
    folders = {Path(piece.path).parent for piece in pieces}
    files = sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})
    stamps = repr([(str(path), stamp_of(path)) for path in files]).encode()
    number = int.from_bytes(sha256(stamps).digest()[:8], "big")
    return [replace(piece, stamp=(*piece.stamp, number)) for piece in pieces]


def pieces_of(given: Sequence[Path], files: Sequence[Path], documents: str, encoding: str) -> list[Piece]:
    """Return the pieces of the files of a split, and say how they are read."""
    sides = {side: path for path in files for side in SIDES if side in re.split("[^a-z]+", path.stem.lower())}
    if len(files) == 2 and (
        len(given) == 2 or (sides.keys() == {*SIDES} and {path.suffix for path in files} == {".txt"})
    ):
        source, target = given if len(given) == 2 else (sides[side] for side in SIDES)
        return [parallel_piece(source, target, encoding)]
    pieces = [piece for path in files for piece in FORMATS[path.suffix.lower()].pieces(path, documents, encoding)]
    if not pieces:
        raise ValueError(f"{files[0]} has no records; give another file")
    for piece in pieces:
        if piece.path.lower().endswith(".csv") and (mark := delimiter_of(piece)) != ",":
            announce(f"{piece.path} separates its columns by {DELIMITERS.get(mark, repr(mark))}")
        if piece.encoding not in (UTF_8, encoding):
            announce(f"{piece.path} is read as {piece.encoding.upper()}, as its byte order mark says")
    return pieces


@cache
def announce(sentence: str) -> None:
    """Say something once."""
    say(sentence)
