"""Verify that a folder or repository is the model of its manifest: its files first, then every way of loading it.

Nothing is loaded unless every file is right, and the code of a repository runs only where the caller trusts it.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from qkv.modeling.conversion.files import located
from qkv.scripts.common.files import model_folder
from qkv.scripts.publishing.export.tested_releases import spelled, stated_releases, untested
from qkv.scripts.publishing.integrity.files import Row, file_row
from qkv.scripts.publishing.integrity.load_paths import load_rows
from qkv.scripts.publishing.integrity.manifest import (
    SIGNATURE,
    IntegrityError,
    Manifest,
    brief,
    differences,
    files_read,
    identity,
    read_manifest,
)
from qkv.scripts.publishing.integrity.signature import CHECK, signature_row

IDENTITY = re.compile(r"[0-9a-f]{16,64}")


@dataclass(frozen=True)
class Report:
    """The checks of a target; for a repository, at one commit."""

    target: str
    commit: str | None
    rows: list[Row]
    identity: str | None = None

    @property
    def passed(self) -> bool:
        """Return whether there are no findings."""
        return not any(row.findings for row in self.rows)

    @property
    def sentence(self) -> str:
        """Return the verdict, with the names of all differences."""
        name = f"{self.target} at {self.commit}" if self.commit else self.target
        if failed := [row for row in self.rows if row.findings]:
            expected = "was signed" if failed[0].check == CHECK else "its manifest says"
            failures = "; ".join(f"{row.check}: {brief(row.findings)}" for row in failed)
            return f"{name} is not what {expected}: {failures}"
        skipped = [row.check for row in self.rows if row.skipped]
        parts = [row.detail for row in self.rows if row.check == CHECK and not row.skipped]
        parts += [f"not run: {', '.join(skipped)}"] if skipped else []
        parts += [f"warning: {row.detail}" for row in self.rows if row.warns]
        return "; ".join([f"{name} is what its manifest says, identity {self.identity}", *parts])


def verify(target: str | Path, **options: Any) -> Report:
    """Compare a folder or Hub repository with its manifest: every file, and every tensor after every way of loading.

    `options` are those of `examine`. IntegrityError names the file, tensor or buffer that differs.
    """
    report = examine(target, **options)
    if not report.passed:
        raise IntegrityError(report.sentence)
    return report


def examine(
    target: str | Path,
    *,
    revision: str | None = None,
    expect: str | Path | None = None,
    signed_by: str | os.PathLike[str] | None = None,
    trust_remote_code: bool = False,
    step: Callable[[str], None] = lambda check: None,
) -> Report:
    """Return the report on a folder or repository, whatever its findings; `step` is called after each check.

    `expect` is the identity that the model must have, or a folder with the model that it must be. `signed_by` is who
    must have signed all of its files: the file of a public key, or "IDENTITY,ISSUER" of a keyless signature. The code
    of a repository runs, in a process of its own, only with `expect` or `trust_remote_code`.
    """
    is_local = Path(target).expanduser().is_dir()
    if revision and is_local:
        raise ValueError(f"{target} is a folder, which has no revision {revision}; leave --revision out")
    folder = model_folder(target) if is_local else located(target, revision, fetch=fetch)
    trusted = trust_remote_code or is_local or expect is not None
    rows = []
    for row in checks(folder, expect, trusted=trusted, signed_by=signed_by):
        rows.append(row)
        step(row.check)
    known = any(row.check == "manifest" and not row.findings for row in rows)
    return Report(str(target), None if is_local else folder.name, rows, identity(folder) if known else None)


def fetch(name: str, revision: str | None, **options: Any) -> Path:
    """Return the folder in the cache with all files of a repository."""
    return Path(snapshot_download(name, revision=revision, **options))


def checks(
    folder: Path, expect: str | Path | None, *, trusted: bool, signed_by: str | os.PathLike[str] | None = None
) -> Iterator[Row]:
    """Yield every check in order; loads only where the files have no findings, and reads nothing that is not signed."""
    if signed_by is not None or (folder / SIGNATURE).is_file():
        signature = signature_row(folder, signed_by)
        yield signature
        if signature.findings:
            return
    try:
        manifest = read_manifest(folder)
    except IntegrityError as error:
        yield Row("manifest", [str(error)])
        return
    yield Row("manifest", detail=", ".join(f"{name} {number}" for name, number in manifest["versions"].items()))
    rows = [file_row(folder, manifest)]
    if expect is not None:
        rows.insert(0, Row("expected model", expectation_findings(manifest, expect), str(expect)))
    if (stated := stated_releases(folder)) is not None:
        warning = untested(folder, stated)
        rows.append(Row("tested releases", detail=warning or f"transformers {spelled(stated)}", warns=bool(warning)))
    yield from rows
    if not any(row.findings for row in rows):
        yield from load_rows(folder, manifest, trusted=trusted)


def expectation_findings(actual: Manifest, expect: str | Path) -> list[str]:
    """Compare a manifest with the identity that was expected, or by name with the model of a folder."""
    lines: list[str] = []
    if Path(expect).is_dir():
        expected = read_manifest(model_folder(expect))
        wanted = expected["identity"]
        lines += differences("file", files_read(expected), files_read(actual))
        for kind, table in expected["loaded"].items():
            lines += differences(kind, table, actual["loaded"][kind])
    elif IDENTITY.fullmatch(wanted := str(expect)) is None:
        raise ValueError(f"{expect!r} is neither a folder nor an identity, which has 16 to 64 digits 0-9 a-f")
    # Loading may make another model of the same files, with another release of torch or transformers.
    is_same = actual["identity"].startswith(wanted)
    return lines or ([] if is_same else [f"identity is {actual['identity']}, expected {wanted}"])
