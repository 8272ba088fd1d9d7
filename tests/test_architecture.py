"""The structure architecture.md promises: who imports whom, one file per idea, small pieces, nothing twice."""

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Imports point strictly down these lists.
RANKS = {
    "configuration": [
        {"axes"},
        {"configuration_base"},
        {"configuration_attention"},
        {"configuration_stack"},
        {"configuration_spectrogram"},
        {"configuration_encoder", "configuration_decoder"},
        {"configuration_encoder_decoder"},
        {"configuration_recurrent", "configuration_dual_encoder", "configuration_detection"},
        {"presets"},
    ],
    "modeling": [
        {"check"},
        {"check_sound", "check_image", "pattern_grid"},
        {"position", "pattern", "normalization", "feed_forward", "loss"},
        {"matching"},
        {"kernel"},
        {"attention"},
        {"layer"},
        {"base"},
        {"spectrogram"},
        {"frontend"},
        {"stack"},
        {"head"},
        {"recurrent", "recurrent_cache"},
        {"reader"},
        {"recurrent_stack"},
        {"modeling_encoder", "modeling_decoder"},
        {
            "modeling_encoder_image",
            "modeling_encoder_pretraining",
            "modeling_encoder_speech",
            "modeling_encoder_decoder",
            "modeling_dual_encoder",
            "modeling_detection",
        },
        {"modeling_encoder_decoder_heads", "modeling_encoder_decoder_speech", "modeling_recurrent"},
    ],
}
# What exceeds a limit says why: `# size: <a sentence>` on the line of the definition or the one above it, for a file
# above its first statement, for a folder in its __init__.py.
REASON = re.compile(r"# size: \w+ \w+ \w+")


def parts(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).glob("*.py")) if path.stem != "__init__"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


CORE = [path for folder in RANKS for path in parts(folder)]
SOURCES = [path for folder in (*RANKS, "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
each_core_file = pytest.mark.parametrize("path", CORE, ids=name_of)
each_source_file = pytest.mark.parametrize("path", SOURCES, ids=name_of)


def rank(folder: str, stem: str) -> float:
    return next((index for index, stems in enumerate(RANKS[folder]) if stem in stems), math.inf)


def imported_names(path: Path) -> Iterator[str]:
    """Everything imported anywhere in the file; relative names keep their dots: `torch.nn`, `.layer`, `..a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def siblings(path: Path) -> list[str]:
    return [name[1:] for name in imported_names(path) if re.fullmatch(r"\.\w+", name)]


@each_core_file
def test_every_file_is_ranked(path: Path) -> None:
    assert rank(path.parent.name, path.stem) < math.inf, f"{name_of(path)} needs a place in RANKS"


@each_core_file
def test_imports_take_the_forms_the_hub_copier_understands(path: Path) -> None:
    cross = r"|\.\.configuration\.(axes|presets|configuration_\w+)" if path.parent.name == "modeling" else ""
    forms = re.compile(rf"\.\w+{cross}")
    own = [name for name in imported_names(path) if name.startswith(".") or name.split(".")[0] in ("qkv", *RANKS)]
    assert [name for name in own if not forms.fullmatch(name)] == []


@each_core_file
def test_imports_point_down(path: Path) -> None:
    folder, own = path.parent.name, rank(path.parent.name, path.stem)
    imported = {stem: rank(folder, stem) for stem in siblings(path)}
    assert [stem for stem, below in imported.items() if below >= own] == []


@pytest.mark.parametrize("folder", RANKS)
def test_imports_have_no_cycle(folder: str) -> None:
    TopologicalSorter({path.stem: siblings(path) for path in parts(folder)}).prepare()


@pytest.mark.parametrize("path", sorted((ROOT / "configuration").glob("*.py")), ids=name_of)
def test_configuration_knows_no_tensor(path: Path) -> None:
    assert [name for name in imported_names(path) if name.split(".")[0] in ("torch", "safetensors", "accelerate")] == []


def test_stems_are_unique_across_folders() -> None:
    stems = [path.stem for path in CORE]
    assert sorted(stems) == sorted(set(stems)), "the Hub folder is flat: one would overwrite the other"


@each_core_file
def test_mirror_is_complete(path: Path) -> None:
    mirror = ROOT / "tests" / path.parent.name / f"test_{path.name}"
    assert mirror.exists(), f"{name_of(mirror)} is missing"


def limits(node: ast.AST, *, family: bool) -> Iterator[tuple[str, int, int]]:
    """What is limited here, how much of it there is, and how much may be.

    A family's `forward` names every input it takes: Trainer drops the columns it does not find there, `generate`
    refuses the keywords. Its parameters are transformers' choice and not counted.
    """
    if isinstance(node, ast.ClassDef):
        yield "lines", length(node, node.lineno), 100
        yield "fields", sum(map(is_field, node.body)), 25
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = 15 if node.name == "forward" else 30
        yield "lines", length(node, node.body[0].lineno), lines
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(parameter.arg not in ("self", "cls") for parameter in parameters)
        if not (family and node.name == "forward"):
            yield "parameters", count, {"forward": 6, "__init__": 3}.get(node.name, count)


def length(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, start: int) -> int:
    """Lines from `start`, the docstring apart: explaining is free."""
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    return node.end_lineno - start + 1 - (docstring.end_lineno - docstring.lineno + 1 if docstring else 0)


def is_field(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation)


def excess(path: Path) -> Iterator[str]:
    lines = path.read_text().splitlines()
    tree = ast.parse("\n".join(lines))
    code = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    header = lines[: code[0].lineno - 1] if code else lines
    if len(lines) > 300 and not any(map(REASON.search, header)):
        yield f"{name_of(path)}: {len(lines)} lines > 300"
    for node in ast.walk(tree):
        for what, count, limit in limits(node, family=path.stem.startswith("modeling_")):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if count > limit and not any(map(REASON.search, lines[max(first - 2, 0) : node.lineno])):
                yield f"{name_of(path)}:{node.lineno} {node.name}: {count} {what} > {limit}"


@each_source_file
def test_sizes_are_kept_or_explained(path: Path) -> None:
    found = list(excess(path))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("folder", "limit"), [("configuration", 700), ("modeling", 3500)])
def test_folder_is_small_enough_to_read(folder: str, limit: int) -> None:
    lines = sum(len(path.read_text().splitlines()) for path in parts(folder))
    assert lines <= limit or REASON.search((ROOT / folder / "__init__.py").read_text()), f"{lines} lines > {limit}"


def own_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines that say something of their own: no imports, signatures, comments, license or bare brackets."""
    tree = ast.parse(path.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
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
