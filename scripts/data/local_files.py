"""Local files of a data set: their splits, and the folders that are labels of images."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from qkv.scripts.common.phases import say_once
from qkv.scripts.data.readers import FORMATS, IMAGES, READERS, TABLES

# Words for splits in names of files and folders.
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test", "eval")}


def split_files(root: Path) -> dict[str, list[Path]]:
    """Return {split: its files} of a file or a folder.

    Images and recordings beside a table are those that it names; other files that are left out are said. ValueError
    where no file can be read, or kinds are mixed.
    """
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    files = [path for path in files if root.is_file() or "/." not in f"/{path.relative_to(root).as_posix()}"]
    known = [path for path in files if ending(path) in FORMATS]
    if not known:
        raise ValueError(f"{root} holds no data: give pictures, or files that end in {', '.join(READERS)}")
    if root.is_file():
        return {"train": known}
    has_tables = any(ending(path) in TABLES for path in known)
    known = [path for path in known if not has_tables or ending(path) not in IMAGES]
    nested, named = has_split_folders(known, root), dict[str, list[Path]]()
    for path in known:
        named.setdefault(split_of(path, root, nested=nested) or "", []).append(path)
    named.setdefault("train", named.get("", []))
    by_split = {split: named[split] for split in SPLITS if named.get(split)}
    used = {path for paths in by_split.values() for path in paths}
    others = [path for path in files if path not in used and (ending(path) in READERS or not has_tables)]
    left = Counter(ending(path) or path.name for path in others)
    if left:
        say_once(f"{root}: files left out are {', '.join(f'{count} {kind}' for kind, count in sorted(left.items()))}")
    for split, paths in by_split.items():
        kinds = {READERS.get(ending(path)): ending(path) for path in paths}
        if len(kinds) > 1:
            mixed = " and ".join(sorted(kinds.values()))
            raise ValueError(f"the {split} split of {root} mixes {mixed}; give the files of one kind")
    return by_split


def ending(path: Path) -> str:
    """Return the ending of a file's name in lower case."""
    return path.suffix.lower()


def has_split_folders(files: Sequence[Path], root: Path) -> bool:
    """Tell whether the folders in a folder are splits. Of folders with images all must be: `train` is a class, too."""
    outer = {path.relative_to(root).parts[0].lower() for path in files if path.parent != root}
    classes = any(ending(path) in IMAGES and path.parent.parent == root for path in files)
    words = {word for names in SPLITS.values() for word in names}
    return outer <= words if classes else bool(outer & words)


def split_of(path: Path, root: Path, *, nested: bool) -> str | None:
    """Return the split that a file belongs to by its folder, or by its own name unless it is an image."""
    words = [path.relative_to(root).parts[0].lower()] if nested and path.parent != root else []
    words += [] if ending(path) in IMAGES else re.split("[^a-z]+", path.stem.lower())
    return next((split for word in words for split, names in SPLITS.items() if word in names), None)


def folder_labels(files: Mapping[str, Sequence[Path]], root: Path) -> dict[Path, str]:
    """Return the labels of images in all splits: their folders, below folders of splits."""
    every = [path for paths in files.values() for path in paths]
    depth = 1 + has_split_folders(every, root) if root.is_dir() else 0
    folders = {path: path.relative_to(root).parent.parts for path in every if depth}
    return {path: parts[-1] for path, parts in folders.items() if len(parts) >= depth}
