"""The structure of the package: who imports whom, one file for each idea, small pieces, nothing twice."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

from checkout import ROOT, python_files

# Lines of a file, of a class and of a function, its docstring apart; a dataclass's fields; a folder's files.
LIMITS = {"file": 300, "class": 100, "function": 30, "forward": 15, "fields": 25, "files": 25}
# Lines of the whole package, so that it can be read; they only fall.
LINES = {"configuration": 2685, "modeling": 14682, "scripts": 22190, "scripts/lab": 3983, "tests": 44187}
CORE = [path for path in python_files("configuration", "modeling") if "package" not in path.parts]


def core_module(path: Path) -> str:
    """`modeling.recurrent.cells` of modeling/recurrent/cells.py, `modeling.position` of modeling/position/__init__.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SOURCES = python_files("configuration", "modeling", "scripts")
PACKAGES = sorted({path.parent for path in SOURCES} - {ROOT / "modeling" / "package"})
FOLDERS = sorted({path.parent for path in python_files("configuration", "modeling", "scripts", "tests")})
TENSORS = {"torch", "safetensors", "accelerate"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported_names(path: Path) -> Iterator[str]:
    """Everything imported anywhere in the file; relative names keep their dots: `torch.nn`, `.layer`, `..a.b`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@cache
def core_imports(path: Path) -> list[str]:
    """What a file of the core imports of the package, in full: `modeling.heads.loss`."""
    package = ".".join(("qkv", *path.relative_to(ROOT).parent.parts))
    names = [resolve_name(name, package) for name in imported_names(path) if name.startswith(".")]
    return [name.removeprefix("qkv.") for name in names]


def test_the_core_imports_itself_relatively_and_nothing_else_of_the_package() -> None:
    for path in CORE:
        absolute = [name for name in imported_names(path) if name.split(".")[0] in {"qkv", "configuration", "modeling"}]
        folders = {"configuration"} | {path.relative_to(ROOT).parts[0]}
        assert absolute + [name for name in core_imports(path) if name.split(".")[0] not in folders] == [], path


def test_the_core_imports_nothing_that_makes_it_fast() -> None:
    core = [path for path in CORE if path.parent.name != "fast_paths" and path != ROOT / "modeling" / "__init__.py"]
    assert {name_of(path): core_imports(path) for path in core if "fast_paths" in str(core_imports(path))} == {}


def test_families_are_imported_by_families_alone() -> None:
    """A part of a model knows no model: a published copy has the parts that its family reaches."""
    parts = [
        path for path in CORE if path.parent.name != "conversion" and not path.stem.startswith(("modeling_", "__"))
    ]
    assert {name_of(path) for path in parts if "modeling.modeling_" in str(core_imports(path))} == set()


def test_the_core_has_no_cycle() -> None:
    graph = {core_module(path): [name for name in core_imports(path) if name != core_module(path)] for path in CORE}
    TopologicalSorter(graph).prepare()


# Rooms of scripts/: what stands later may import what stands earlier, and never the other way round.
ROOMS = [
    {"common"},
    {"recipes", "conversion", "context", "attention", "conformance"},
    {"data", "probes"},
    {"example_data"},
    {"tasks"},
    {"training"},
    {"planning", "publishing", "prediction"},
    {"attention_view"},
    {"web_demo"},
    {"commands"},
    {"lab"},
]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "scripts").with_suffix("").parts)


SCRIPTS = {module_of(path): path for path in python_files("scripts")}


@cache
def imported_scripts(module: str) -> set[str]:
    """The modules of scripts/ that one of them imports, wherever in it."""
    names = set()
    for node in ast.walk(tree(SCRIPTS[module])):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qkv.scripts"):
            inner = (node.module or "").removeprefix("qkv.scripts").lstrip(".")
            names |= {inner, *(f"{inner}.{alias.name}".lstrip(".") for alias in node.names)}
        elif isinstance(node, ast.Import):
            own = [alias.name for alias in node.names if alias.name.startswith("qkv.scripts.")]
            names |= {name.removeprefix("qkv.scripts.") for name in own}
    return names & SCRIPTS.keys()


def room_of(module: str) -> str:
    return module.partition(".")[0] if "." in module else "commands"


def level(module: str) -> int:
    return next(index for index, rooms in enumerate(ROOMS) if room_of(module) in rooms)


def test_rooms_import_earlier_rooms_alone() -> None:
    for own in SCRIPTS:
        others = [other for other in imported_scripts(own) if room_of(other) != room_of(own)]
        assert [other for other in others if level(other) >= level(own)] == [], own


def test_scripts_have_no_cycle() -> None:
    TopologicalSorter({module: imported_scripts(module) for module in SCRIPTS}).prepare()


def test_only_the_registry_joins_a_data_set_with_a_task() -> None:
    joining = {module for module in SCRIPTS if {"example_data", "tasks"} <= set(map(room_of, imported_scripts(module)))}
    assert {module for module in joining if room_of(module) == "tasks"} == {"tasks.registry"}


def test_configuration_knows_no_tensor() -> None:
    for path in python_files("configuration"):
        assert {name.split(".")[0] for name in imported_names(path)}.isdisjoint(TENSORS), name_of(path)


def sizes(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.ClassDef):
        yield "class", length(node, node.lineno)
        yield "fields", sum(map(is_field, node.body))
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield "forward" if node.name == "forward" else "function", length(node, node.body[0].lineno)


def length(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, start: int) -> int:
    """Lines from `start`, the docstring apart: explaining is free."""
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    return node.end_lineno - start + 1 - (docstring.end_lineno - docstring.lineno + 1 if docstring else 0)


def is_field(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation)


def excess(path: Path) -> Iterator[tuple[str, int]]:
    """Yield what is larger in a file than LIMITS allow, with its size."""
    text = path.read_text()
    found = [("", "file", len(text.splitlines()))]
    found += [(f":{node.name}", kind, size) for node in ast.walk(tree(path)) for kind, size in sizes(node)]
    yield from ((f"{name_of(path)}{name} {kind}", size) for name, kind, size in found if size > LIMITS[kind])


def large_folders() -> Iterator[tuple[str, int]]:
    for folder in FOLDERS:
        count = sum(path.is_file() for path in folder.iterdir())
        if count > LIMITS["files"]:
            yield f"{name_of(folder)} files", count


def test_sizes_are_within_limits() -> None:
    assert dict([*(row for path in SOURCES for row in excess(path)), *large_folders()]) == {}


@pytest.mark.parametrize(("node", "most"), [("forward", 6), ("__init__", 3)])
def test_parameters_are_few(node: str, most: int) -> None:
    """A family's `forward` names every input it takes: Trainer drops columns that it does not find there."""
    sources = [path for path in SOURCES if node != "forward" or not path.stem.startswith("modeling_")]
    counts = {f"{name_of(path)}:{line}": count for path in sources for line, count in parameter_counts(path, node)}
    assert {place: count for place, count in counts.items() if count > most} == {}


def parameter_counts(path: Path, name: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            names = {parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            yield node.lineno, len(names - {"self", "cls"})


@pytest.mark.parametrize("folder", LINES)
def test_folder_is_small_enough_to_read(folder: str) -> None:
    paths = [path for path in python_files(folder) if folder == "scripts/lab" or "lab" not in path.parts]
    assert sum(len(path.read_text().splitlines()) for path in paths) <= LINES[folder]


def test_folder_says_in_one_sentence_what_it_holds() -> None:
    for folder in PACKAGES:
        sentence = (ast.get_docstring(tree(folder / "__init__.py")) or "").partition("\n\n")[0]
        one = re.fullmatch(r"[A-Z].*\.", sentence, re.DOTALL) and len(re.findall(r"\.(\s|$)", sentence)) == 1
        assert one, f"{name_of(folder)}: {sentence}"


def own_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines that say something of their own: no imports, signatures, comments, license or bare brackets."""
    skipped: set[int] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            skipped.update(range(node.lineno, node.body[0].lineno))  # a shared signature is an interface, not a copy
    lines = enumerate(map(str.strip, path.read_text().splitlines()), start=1)
    return [(n, line) for n, line in lines if n not in skipped and re.search(r"\w", line) and line[0] != "#"]


def copies(paths: list[Path], length: int = 5) -> list[str]:
    places = defaultdict(set)
    for path in paths:
        lines = own_lines(path)
        for window in zip(*(lines[start:] for start in range(length)), strict=False):
            places[tuple(line for _, line in window)].add((path, window[0][0]))
    repeated = [found for found in places.values() if len({path for path, _ in found}) > 1]
    return [" = ".join(f"{name_of(path)}:{number}" for path, number in sorted(found)) for found in repeated]


def test_no_five_lines_stand_in_two_files() -> None:
    found = copies(SOURCES)
    assert not found, "\n".join(found)
