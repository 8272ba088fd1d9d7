"""Local files of a data set: their splits, the folders that are labels of images, and the files that are left out."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from qkv.scripts.common.phases import say_once
from qkv.scripts.data.columns import media_of
from qkv.scripts.data.formats.parallel_texts import aligned_files, languages_of
from qkv.scripts.data.formats.readers import FORMATS, IMAGES, READERS, TABLES
from qkv.scripts.data.read_report import counted

# Words for splits in names of files and folders.
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"),
          "test": ("test", "testing", "eval")}  # fmt: skip
WORDS = {word for names in SPLITS.values() for word in names}
COMPANIONS = {"image", "images", "imgs", "mask", "masks", "label", "labels", "annotations"}  # of segmentation
SYSTEM = ("__MACOSX", "Thumbs.db", "desktop.ini")  # names that Windows and macOS add


def files_below(root: Path) -> tuple[list[Path], Counter[str]]:
    """Return the files of a folder in order, links followed, and how many others it has: hidden ones, broken links."""
    files, others, seen = list[Path](), Counter[str](), set[str]()
    for folder, inner, names in os.walk(root, followlinks=True):
        if (place := os.path.realpath(folder)) in seen:  # links may lead in a circle
            inner.clear()
        others.update(["empty folder"] * (not inner and not names))
        for path in (Path(folder) / name for name in names if place not in seen):
            is_hidden = any(part.startswith(".") or part in SYSTEM for part in path.relative_to(root).parts)
            if is_hidden or not path.is_file():
                others["hidden" if is_hidden else "broken link"] += 1
            else:
                files.append(path)
        seen.add(place)
    return sorted(files), others


def found_files(root: Path) -> tuple[dict[str, list[Path]], Counter[str]]:
    """Return {split: its files} of a file or a folder, and the number of files that are left out, by ending.

    Images and recordings beside a table are those that it names. ValueError where no file can be read, or kinds are
    mixed.
    """
    files, left = (files_at(root), Counter[str]()) if root.is_file() else files_below(root)
    translated = aligned_files(path for path in files if ending(path) not in FORMATS)
    known = [path for path in files if ending(path) in FORMATS] + [*translated]
    if not known:
        held = counted(left + Counter(ending(path) or path.name for path in files)) or "nothing"
        raise ValueError(
            f"{root} holds no picture, table or text, but {held}; recordings need a table that names them, and tables "
            f"or texts end in {', '.join(READERS)}"
        )
    if foreign := next((path for path in known if "\\udc" in ascii(str(path))), None):
        raise ValueError(f"{os.fsencode(foreign)!r}: the name is not UTF-8; rename the file or folder")
    if root.is_file():
        return {"train": known}, left
    has_tables = any(ending(path) in TABLES or path in translated for path in known)
    # A few texts about images or translations, such as README.txt, are left out.
    texts = [path for path in known if ending(path) not in (*IMAGES, *([".txt"] if translated else ()))]
    known = texts if has_tables else known if 10 * len(texts) > len(known) else sorted({*known} - {*texts})
    nested, named = has_split_folders(known, root), dict[str, list[Path]]()
    for path in known:
        named.setdefault(split_of(path, root, nested=nested) or "", []).append(path)
    named.setdefault("train", named.get("", []))
    by_split = {split: named[split] for split in SPLITS if named.get(split)}
    used = {each for paths in by_split.values() for path in paths for each in translated.get(path, {"": path}).values()}
    names_media = has_tables and not translated  # a table does, lines of translations do not
    others = [path for path in files if path not in used and not (names_media and media_of(path.name))]
    left.update(ending(path) or path.name for path in others)
    check_kinds(by_split, root)
    return by_split, left


def check_kinds(by_split: Mapping[str, Sequence[Path]], root: Path) -> None:
    """Raise ValueError where a split has files of two kinds."""
    for split, paths in by_split.items():
        kinds = {READERS.get(ending(path)): ending(path) for path in paths}
        if len(kinds) > 1:
            mixed = " and ".join(sorted(kinds.values()))
            raise ValueError(f"the {split} split of {root} mixes {mixed}; give the files of one kind")


def files_at(path: Path) -> list[Path]:
    """Return the files of a path: those of a folder, or a file and its lines in other languages."""
    if path.is_dir():
        return files_below(path)[0]
    return [*languages_of(path).values()] if ending(path) not in FORMATS else [path]


def ending(path: Path) -> str:
    """Return the ending of a file's name in lower case."""
    return path.suffix.lower()


def has_split_folders(files: Sequence[Path], root: Path) -> bool:
    """Tell whether the folders in a folder are splits.

    Of folders with images all must be called so, or hold the same classes: `train` is a class, too. ValueError where
    both may be meant.
    """
    folders: dict[str, set[str]] = {}
    for path in files:
        name, *inner = path.relative_to(root).parts[:-1] or [""]
        folders.setdefault(name.lower(), set()).add(inner[0] if inner else "")
    outer = {name: inner for name, inner in folders.items() if name}
    called, others = sorted(outer.keys() & WORDS), sorted(outer.keys() - WORDS)
    if not called or not others or not any(ending(path) in IMAGES for path in files):
        return bool(called)
    if any("" in outer[name] for name in called):
        return False
    first = outer[called[0]]
    if not any(first & inner for name, inner in outer.items() if name != called[0]):
        raise ValueError(
            f"{root}: {', '.join(called)} may be splits or classes beside {', '.join(others[:4])}; give a folder for "
            "each split with a folder for each class in it, or images alone in the folder of each class"
        )
    return True


def split_of(path: Path, root: Path, *, nested: bool) -> str | None:
    """Return the split that a file belongs to by its folder, or by its own name unless it is an image."""
    words = [path.relative_to(root).parts[0].lower()] if nested and path.parent != root else []
    words += [] if ending(path) in IMAGES else re.split("[^a-z]+", path.stem.lower())
    return next((split for word in words for split, names in SPLITS.items() if word in names), None)


def folder_labels(files: Mapping[str, Sequence[Path]], root: Path) -> dict[Path, str]:
    """Return the labels of images in all splits: the outermost folders that differ, below folders of splits."""
    every = [path for paths in files.values() for path in paths]
    depth = has_split_folders(every, root) if root.is_dir() else 0
    folders = {path: path.relative_to(root).parent.parts[depth:] for path in every if root.is_dir()}
    folders = {path: parts for path, parts in folders.items() if parts}
    shallowest = min(map(len, folders.values()), default=0)
    levels = (level for level in range(shallowest) if len({parts[level] for parts in folders.values()}) > 1)
    level = next(levels, shallowest - 1)
    labels = {path: parts[level] for path, parts in folders.items()}
    if len(names := {name.lower() for name in labels.values()}) > 1 and names <= COMPANIONS:
        both = " and ".join(sorted(names))
        raise ValueError(f"{root}: folders called {both} are no classes; name images and classes or boxes in a table")
    if inner := {parts[level + 1] for parts in folders.values() if len(parts) > level + 1}:
        classes, deeper = (", ".join(sorted(names)[:4]) for names in (set(labels.values()), inner))
        say_once(f"{root}: classes are the folders {classes}; folders in them, {deeper}, are none")
    return labels


def check_media(root: Path, rows: int) -> None:
    """Raise ValueError where as many images and recordings lie beside tables that name none as half their rows."""
    beside = Counter(ending(path) for path in files_below(root)[0] if media_of(path.name))
    if beside and 2 * beside.total() >= rows:
        raise ValueError(
            f"{root} holds {counted(beside)} and tables of {rows} rows, of which no column names files; give names "
            "with their endings in a column file_name, or the folder of the files without the tables, or a table alone"
        )
