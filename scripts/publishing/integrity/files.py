"""Compare the files of a folder with its manifest, down to each tensor, without loading the model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.modeling.conversion.files import CONFIG, named, read_json, tensor_files, weight_files
from qkv.scripts.common.files import file_hash
from qkv.scripts.publishing.export.tested_releases import stated_releases
from qkv.scripts.publishing.integrity.manifest import (
    RELEASES,
    IntegrityError,
    Manifest,
    differences,
    file_paths,
    file_tensors,
    is_document,
)


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
        if of_code and expected and manifest.get(RELEASES) != stated_releases(folder):
            findings.append("the code was tested with other releases of transformers than the manifest says")
        yield Row(check, findings, f"{len(expected)} files, {sum(each['bytes'] for each in expected.values()):,} bytes")
    tensors, fields = manifest["tensors"], {name: each for name, each in manifest["fields"].items() if reads(name)}
    count = f"{sum(map(len, tensors.values()))} in {len(tensors)} files, each where the index has it"
    yield Row("tensors", findings_of(weight_findings(folder, tensors)), count)
    yield Row("config", findings_of(saved_config_findings(folder, fields)), ", ".join(sorted(fields)))


def findings_of(check: Iterator[str]) -> list[str]:
    """Return the findings of a check; a file that it cannot read is one."""
    findings: list[str] = []
    try:
        findings.extend(check)
    except (ValueError, IntegrityError) as error:
        findings.append(str(error))
    return findings


def file_findings(path: Path, name: str, expected: dict[str, Any]) -> Iterator[str]:
    """Compare a file with its entry, size before content."""
    if not path.is_file():
        yield f"{name} is missing"
    elif path.stat().st_size != expected["bytes"]:
        yield f"{name} has {path.stat().st_size:,} bytes, the manifest says {expected['bytes']:,}"
    elif file_hash(path) != expected["sha256"]:
        yield f"{name} has other content"


def weight_findings(folder: Path, tensors: dict[str, dict[str, str]]) -> Iterator[str]:
    """Compare the tensors of every file, and the index of the weights with the files."""
    for name, expected in tensors.items():
        if (folder / name).is_file():
            yield from differences("tensor", expected, file_tensors(folder / name))
    listed = weight_files(folder)
    for name, file in sorted(tensor_files(folder).items()):
        if listed[file.name] and name not in listed[file.name]:
            yield f"{name} is in {file.name}, where the index does not have it"


def saved_config_findings(folder: Path, expected: dict[str, Any]) -> Iterator[str]:
    """Compare the fields of a folder's config files; ValueError for a config that loads a kernel or other weights."""
    if CONFIG in expected and (folder / CONFIG).is_file():
        named(folder)
    there = {name: read_json(folder / name) for name in expected if (folder / name).is_file()}
    yield from config_findings(expected, there)


def config_findings(expected: dict[str, Any], actual: dict[str, Any]) -> Iterator[str]:
    """Compare {config file: its fields}; nested fields have dotted names."""
    for file in sorted(expected.keys() & actual.keys()):
        then, now = (dict(flat(files[file])) for files in (expected, actual))
        for name in sorted(then.keys() | now.keys()):
            # As text, for 1 is not True.
            one, other = (repr(fields[name]) if name in fields else "missing" for fields in (then, now))
            if one != other:
                yield f"{file}: field {name} is {other}, in the manifest {one}"


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of nested objects."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
