"""Compare the files of a folder with its manifest, down to each tensor, without loading the model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.modeling.conversion.files import CONFIG, named, read_json, tensor_files, weight_files
from qkv.scripts.common.files import file_hash
from qkv.scripts.publishing.export.tested_releases import UNSTATED, spelled, stated_releases
from qkv.scripts.publishing.integrity.manifest import (
    IntegrityError,
    Manifest,
    differences,
    file_paths,
    file_tensors,
    is_document,
)
from qkv.scripts.publishing.integrity.manifest_types import RELEASES


@dataclass(frozen=True)
class Row:
    """One check: its findings, a detail of what was compared, and whether it was skipped or the detail is a warning."""

    check: str
    findings: list[str] = field(default_factory=list)
    detail: str = ""
    skipped: bool = False
    warns: bool = False

    @property
    def result(self) -> str:
        """Return the result in a word."""
        if self.skipped:
            return "not run"
        return "FAILED" if self.findings else "warning" if self.warns else "passed"


def file_rows(folder: Path, manifest: Manifest, reads: Callable[[str], bool] = lambda name: True) -> Iterator[Row]:
    """Yield the checks of a folder's files; `reads` selects files by name."""
    files = {name: each for name, each in manifest["files"].items() if reads(name)}
    present = [path.relative_to(folder).as_posix() for path in file_paths(folder)]
    added = [name for name in present if name not in files and reads(name) and not is_document(name)]
    for check, of_code in (("files", False), ("code", True)):
        expected = {name: each for name, each in files.items() if name.endswith(".py") == of_code}
        findings = [line for name, each in expected.items() for line in file_findings(folder / name, name, each)]
        findings += [f"{name} is not in the manifest" for name in added if name.endswith(".py") == of_code]
        findings = findings or (release_findings(folder, manifest) if of_code and expected else [])
        yield Row(check, findings, f"{len(expected)} files, {sum(each['bytes'] for each in expected.values()):,} bytes")
    yield Row(
        "weight files",
        findings_of(index_findings, folder),
        "each tensor in the file that the index names, and only there",
    )
    tensors = manifest["tensors"]
    there = {name: each for name, each in tensors.items() if (folder / name).is_file()}
    findings = [line for name, each in there.items() for line in findings_of(tensor_findings, folder / name, each)]
    yield Row("tensors", findings, f"{sum(map(len, tensors.values()))} in {len(tensors)} files")
    fields = {name: each for name, each in manifest["fields"].items() if reads(name)}
    yield Row("config", findings_of(folder_config_findings, folder, fields), ", ".join(sorted(fields)))


def findings_of(check: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """Return what a check finds; a file that it cannot read is a finding."""
    try:
        return check(*arguments)
    except (ValueError, IntegrityError) as error:
        return [str(error)]


def file_findings(path: Path, name: str, expected: dict[str, Any]) -> list[str]:
    """Compare a file with its entry, size before content."""
    if not path.is_file():
        return [f"{name} is missing"]
    if path.stat().st_size != expected["bytes"]:
        return [f"{name} has {path.stat().st_size:,} bytes, the manifest says {expected['bytes']:,}"]
    return [] if file_hash(path) == expected["sha256"] else [f"{name} has other content"]


def release_findings(folder: Path, manifest: Manifest) -> list[str]:
    """Compare the releases of transformers in a manifest with those that the code states."""
    stated = stated_releases(folder)
    known = manifest.get(RELEASES, stated and UNSTATED)  # older manifests have none, as the code beside them
    code, listed = (spelled(each) if each else "none" for each in (stated, known))
    return [] if code == listed else [f"the code was tested with transformers {code}, the manifest says {listed}"]


def index_findings(folder: Path) -> list[str]:
    """Compare the index of the weights with the files."""
    listed, files = weight_files(folder), tensor_files(folder)
    return [
        f"{name} is in {file.name}, where the index does not have it"
        for name, file in sorted(files.items())
        if listed[file.name] and name not in listed[file.name]
    ]


def tensor_findings(path: Path, expected: dict[str, str]) -> list[str]:
    """Compare the tensors of a file."""
    return differences("tensor", expected, file_tensors(path))


def folder_config_findings(folder: Path, expected: dict[str, Any]) -> list[str]:
    """Compare the fields of a folder's config files; files that are missing or new are told elsewhere.

    ValueError for a config that would have a kernel or other weights loaded.
    """
    if CONFIG in expected and (folder / CONFIG).is_file():
        named(folder)
    actual = {name: read_json(folder / name) for name in expected if (folder / name).is_file()}
    return config_findings(expected, actual)


def config_findings(expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    """Compare {config file: its fields}; nested fields have dotted names."""
    lines = []
    for file in sorted(expected.keys() & actual.keys()):
        one, other = (dict(flat(files[file])) for files in (expected, actual))
        for name in sorted(one.keys() | other.keys()):
            # As text, for 1 is not True.
            now = repr(other[name]) if name in other else "missing"
            then = repr(one[name]) if name in one else "nothing"
            if now != then:
                lines.append(f"{file}: field {name} is {now}, the manifest says {then}")
    return lines


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of nested objects."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
