"""Compare the files of a folder with its manifest, without loading the model."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from qkv.modeling.conversion.files import named
from qkv.scripts.common.inspector import fingerprint
from qkv.scripts.publishing.export.tested_releases import stated_releases
from qkv.scripts.publishing.integrity.manifest import RELEASES, Manifest, file_paths, is_document, listed


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


def file_row(folder: Path, manifest: Manifest) -> Row:
    """Compare all files of a folder with the manifest; a config that loads a kernel or other weights is a finding."""
    files, tensors = manifest["files"], {**manifest["loaded"]["parameter"], **manifest["loaded"]["buffer"]}
    findings = [line for name, entry in files.items() for line in file_findings(folder / name, name, entry, tensors)]
    names = [path.relative_to(folder).as_posix() for path in file_paths(folder)]
    findings += [f"{name} is not in the manifest" for name in names if name not in files and not is_document(name)]
    if manifest.get(RELEASES) != stated_releases(folder):
        findings.append("the code was tested with other releases of transformers than the manifest says")
    try:
        named(folder)
    except ValueError as error:
        findings.append(str(error))
    return Row("files", findings, f"{len(files)} files, {sum(each['bytes'] for each in files.values()):,} bytes")


def file_findings(path: Path, name: str, entry: dict[str, Any], tensors: dict[str, str]) -> Iterator[str]:
    """Compare a file with its entry, and where weights differ, each tensor with the loaded one of its name."""
    if not path.is_file():
        yield f"{name} is missing"
        return
    if listed(path) == entry:
        return
    yield f"{name} has other content"
    if path.suffix != ".safetensors":
        return
    try:
        with safe_open(path, framework="pt") as file:
            found = {key: fingerprint(file.get_tensor(key)) for key in file.keys()}
    except SafetensorError as error:
        yield f"{name} is cut short or damaged ({error})"
        return
    yield from (f"tensor {key} has other content" for key, each in found.items() if tensors.get(key, each) != each)
