"""Local files of a data set: their splits, the folders that are labels, and the pieces that they are read in."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from datasets import ClassLabel, Features, Image

from qkv.scripts.common.phases import say
from qkv.scripts.data.delimited import DELIMITERS, delimiter_of
from qkv.scripts.data.encoding import UTF_8
from qkv.scripts.data.pieces import Piece
from qkv.scripts.data.readers import FORMATS, IMAGES, TABLES, parallel_piece, stamp_of

# Words for splits, and for the sides of parallel texts, in names of files and folders.
SPLITS = {"validation": ("validation", "valid", "val", "dev"), "test": ("test", "eval"), "train": ("train", "training")}
SIDES = {"source": ("source", "src"), "target": ("target", "tgt")}


def split_files(given: Sequence[Path]) -> dict[str, list[Path]]:
    """Return {split: its files} of a file, a folder, or two files that belong together.

    ValueError where none is of a known kind, or kinds are mixed. Images beside a table are those that it names.
    """
    if len(given) == 2:
        return {"train": list(given)}
    root = given[0]
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    hidden = [any(part.startswith(".") for part in path.relative_to(root).parts) for path in files]
    files = [path for path, skip in zip(files, hidden, strict=True) if not skip and path.suffix.lower() in FORMATS]
    if not files:
        raise ValueError(f"{root} holds no data: the files that are read end in {', '.join(FORMATS)}")
    tables = [path for path in files if path.suffix.lower() in TABLES]
    if tables and any(path.suffix.lower() in IMAGES for path in files):
        announce(f"the images of {root} are those that {tables[0].relative_to(root)} names")
        files = [path for path in files if path.suffix.lower() not in IMAGES]
    named: dict[str | None, list[Path]] = {}
    for path in files:
        named.setdefault(split_of(path, root), []).append(path)
    unnamed = named.pop(None, [])
    by_split: dict[str, list[Path]] = {name: named[name] for name in ("train", "validation", "test") if name in named}
    by_split = by_split if "train" in by_split or not unnamed else {"train": unnamed, **by_split}
    for split, paths in by_split.items():
        suffixes = {suffix: FORMATS[suffix] for suffix in sorted({path.suffix.lower() for path in paths})}
        if len(set(suffixes.values())) > 1:
            raise ValueError(f"the {split} split of {root} mixes {' and '.join(suffixes)}; give the files of one kind")
    return by_split


def split_of(path: Path, root: Path) -> str | None:
    """Return the split that a file belongs to by its folder, or by its own name unless it is an image."""
    folders = [folder.lower() for folder in path.relative_to(root).parent.parts[:1]]
    stem = [] if path.suffix.lower() in IMAGES else words_of(path)
    return next((split for word in (*folders, *stem) for split, names in SPLITS.items() if word in names), None)


def words_of(path: Path) -> list[str]:
    """Return the words in the name of a file."""
    return re.split("[^a-z]+", path.stem.lower())


def with_labels(pieces: Sequence[Piece], files: dict[str, list[Path]], root: Path) -> tuple[list[Piece], Features]:
    """Give images the numbers of their labels: the folders they lie in, of all splits, by name."""
    labels = sorted({label for paths in files.values() for path in paths if (label := label_of(path, root))})
    features = Features({"image": Image(decode=False)} | ({"label": ClassLabel(names=labels)} if labels else {}))
    own = [label_of(Path(piece.path), root) for piece in pieces]
    numbers = [labels.index(label) if label else None for label in own]
    return [replace(piece, label=label) for piece, label in zip(pieces, numbers, strict=True)], features


def label_of(path: Path, root: Path) -> str | None:
    """Return the folder of an image, below that of its split."""
    folders = path.relative_to(root).parent.parts
    return folders[-1] if len(folders) > (split_of(path, root) is not None) else None


def with_stamps(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces of tables with the state of all files beside them, of which the tables name some."""
    folders = {Path(piece.path).parent for piece in pieces}
    files = sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})
    stamps = repr([(str(path), stamp_of(path)) for path in files]).encode()
    number = int.from_bytes(sha256(stamps).digest()[:8], "big")
    return [replace(piece, stamp=(*piece.stamp, number)) for piece in pieces]


def pieces_of(given: Sequence[Path], files: Sequence[Path], documents: str, encoding: str) -> list[Piece]:
    """Return the pieces of the files of a split, and say what was found out about them."""
    if parallel := given if len(given) == 2 else parallel_files(files):
        return [parallel_piece(parallel[0], parallel[1], encoding)]
    pieces = [piece for path in files for piece in FORMATS[path.suffix.lower()].pieces(path, documents, encoding)]
    if not pieces:
        raise ValueError(f"{files[0]} has no records; give another file")
    for piece in pieces:
        if piece.path.lower().endswith(".csv") and (mark := delimiter_of(piece)) != ",":
            announce(f"{piece.path} separates its columns by {DELIMITERS[mark]}")
        if piece.encoding not in (UTF_8, encoding):
            announce(f"{piece.path} is read as {piece.encoding.upper()}, as its byte order mark says")
    return pieces


def parallel_files(files: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return a source and a target, two .txt files in this order or named so; None for other files."""
    if len(files) != 2 or any(path.suffix.lower() != ".txt" for path in files):
        return None
    sides = [[side for side, names in SIDES.items() if set(words_of(path)) & set(names)] for path in files]
    if sides == [["target"], ["source"]]:
        return files[1], files[0]
    return (files[0], files[1]) if sides == [["source"], ["target"]] else None


@cache
def announce(sentence: str) -> None:
    """Say something once."""
    say(sentence)
