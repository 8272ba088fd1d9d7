"""A folder of what pip would install with some extras: links to the distributions that are here anyway."""

import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = SETTINGS["project"]["optional-dependencies"]


def requirements(*extras: str) -> Iterator[Requirement]:
    """What the package requires with these extras, as pyproject.toml says it; an extra may name others."""
    rows = [*SETTINGS["project"]["dependencies"], *(row for extra in extras for row in EXTRAS[extra])]
    for requirement in map(Requirement, rows):
        if requirement.name == "qkv":
            yield from requirements(*requirement.extras)
        else:
            yield requirement


def closure(required: Iterable[Requirement]) -> dict[str, Distribution]:
    """All distributions that these requirements bring, and those that they require in turn."""
    found: dict[str, Distribution] = {}
    waiting = list(required)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found[name] = distribution(name)
            rows = map(Requirement, found[name].requires or [])
            waiting += [row for row in rows if row.marker is None or row.marker.evaluate({"extra": ""})]
    return found


def modules(installed: Distribution) -> set[str]:
    """The files and folders of a distribution that stand in site-packages."""
    return {file.parts[0] for file in installed.files or []} - {"..", "__pycache__", "bin"}


def link(folder: Path, required: Iterable[Requirement]) -> Path:
    """Fill a folder with what these requirements bring."""
    for installed in closure(required).values():
        for top in modules(installed):
            (folder / top).exists() or (folder / top).symlink_to(str(installed.locate_file(top)))
    return folder


def install_dependencies(folder: Path, *extras: str) -> Path:
    """Fill a folder with what `pip install 'qkv[extras]'` brings beside qkv."""
    return link(folder, requirements(*extras))


def make_environment(folder: str, *names: str) -> None:
    """Make an environment in which `pip install names` is done, and nothing else."""
    venv.create(folder, clear=True, symlinks=True)
    link(Path(sysconfig.get_path("purelib", "venv", {"base": folder})), map(Requirement, names))


def install(folder: Path, *extras: str) -> Path:
    """Fill a folder with what `pip install 'qkv[extras]'` brings."""
    install_dependencies(folder, *extras)
    folders = SETTINGS["tool"]["setuptools"]["package-dir"]
    (folder / "qkv").mkdir()
    for path in [*(ROOT / folders[""] / "qkv").iterdir(), *(ROOT / each for name, each in folders.items() if name)]:
        (folder / "qkv" / path.name).symlink_to(path)
    project = SETTINGS["project"]
    about = folder / f"qkv-{project['version']}.dist-info"
    (about / "licenses").mkdir(parents=True)
    (about / "licenses" / "LICENSE").symlink_to(ROOT / "LICENSE")
    required = [f'Requires-Dist: {row}; extra == "{name}"' for name, rows in EXTRAS.items() for row in rows]
    lines = ["Metadata-Version: 2.4", "Name: qkv", f"Version: {project['version']}", *required, ""]
    (about / "METADATA").write_text("\n".join(lines))
    return folder


if __name__ == "__main__":
    make_environment(*sys.argv[1:])
