"""Verify that a folder or repository is the model of its manifest: its files first, then every way of loading it.

Nothing is loaded unless every file is right, and the code of a repository runs only where the caller trusts it.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.modeling.conversion.files import located
from qkv.scripts.common.files import model_folder
from qkv.scripts.publishing.export.tested_releases import spelled, stated_releases, untested
from qkv.scripts.publishing.integrity.bundle import SIGNATURE
from qkv.scripts.publishing.integrity.files import Row, config_findings, file_rows
from qkv.scripts.publishing.integrity.guard import fetched
from qkv.scripts.publishing.integrity.load_paths import load_rows
from qkv.scripts.publishing.integrity.manifest import (
    IntegrityError,
    Manifest,
    brief,
    by_file,
    by_name,
    differences,
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
    def name(self) -> str:
        """Return the target with its commit."""
        return f"{self.target} at {self.commit}" if self.commit else self.target

    @property
    def sentence(self) -> str:
        """Return the verdict, with the names of what differs."""
        if self.passed:
            skipped = [row.check for row in self.rows if row.skipped]
            left = f"; not run: {', '.join(skipped)}" if skipped else ""
            signed = [f"; {row.detail}" for row in self.rows if row.check == CHECK and not row.skipped]
            warned = [f"; warning: {row.detail}" for row in self.rows if row.warns]
            return f"{self.name} is what its manifest says, identity {self.identity}{''.join([*signed, left, *warned])}"
        failed = [row for row in self.rows if row.findings]
        failures = "; ".join(f"{row.check}: {brief(row.findings)}" for row in failed)
        expected = "was signed" if failed[0].check == CHECK else "its manifest says"
        return f"{self.name} is not what {expected}: {failures}"


def verify(
    target: str | Path,
    *,
    revision: str | None = None,
    expect: str | Path | None = None,
    signed_by: str | os.PathLike[str] | None = None,
    trust_remote_code: bool = False,
) -> Report:
    """Compare a folder or Hub repository with its manifest: every file, and every tensor after every way of loading.

    `expect` is the identity that the model must have, or a folder with the model that it must be. `signed_by` is who
    must have signed all of its files: the file of a public key, or "IDENTITY,ISSUER" of a keyless signature. The code
    of a repository runs, in a process of its own, only with `expect` or `trust_remote_code`. IntegrityError names the
    file, tensor, buffer or config field that differs.
    """
    report = examine(target, revision=revision, expect=expect, signed_by=signed_by, trust_remote_code=trust_remote_code)
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
    """Return the report on a folder or repository, whatever its findings; `step` is called after each check."""
    repository = not Path(target).expanduser().is_dir()
    folder = located(target, revision, fetch=fetched) if repository else model_folder(target)
    if revision and not repository:
        raise ValueError(f"{target} is a folder, which has no revision {revision}; leave --revision out")
    rows = []
    trusted = trust_remote_code or not repository or expect is not None
    for row in checks(folder, expect, trusted=trusted, signed_by=signed_by):
        rows.append(row)
        step(row.check)
    known = any(row.check == "manifest" and not row.findings for row in rows)
    return Report(str(target), folder.name if repository else None, rows, identity(folder) if known else None)


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
    rows = [Row("manifest", detail=", ".join(f"{name} {number}" for name, number in manifest["versions"].items()))]
    if expect is not None:
        rows.append(Row("expected model", expectation_findings(manifest, expect), str(expect)))
    rows += [*file_rows(folder, manifest), *release_rows(folder)]
    yield from rows
    if not any(row.findings for row in rows):
        yield from load_rows(folder, manifest, trusted=trusted)


def release_rows(folder: Path) -> Iterator[Row]:
    """Yield the check of the installed transformers, a warning where it is newer than what the code was tested with."""
    tested = stated_releases(folder)
    if tested is not None:
        warning = untested(folder, tested)
        yield Row("tested releases", detail=warning or f"transformers {spelled(tested)}", warns=bool(warning))


def expectation_findings(manifest: Manifest, expect: str | Path) -> list[str]:
    """Compare a manifest with the identity, or with the folder, that was expected."""
    if Path(expect).is_dir():
        return model_findings(read_manifest(model_folder(expect)), manifest)
    if not IDENTITY.fullmatch(str(expect)):
        raise ValueError(f"{expect!r} is neither a folder nor an identity, which has 16 to 64 digits 0-9 a-f")
    if manifest["identity"].startswith(str(expect)):
        return []
    return [f"identity is {manifest['identity']}, expected {expect}"]


def model_findings(expected: Manifest, actual: Manifest) -> list[str]:
    """Compare two models by name; documents and versions do not count."""
    lines: list[str] = [line for part in ("class", "dtype") for line in differing(part, expected[part], actual[part])]
    lines += config_findings(expected["fields"], actual["fields"])
    for what, table in (("tensor", by_name), ("file", by_file)):
        lines += differences(what, table(expected), table(actual))
    # What loading makes of all this may still be another, with another release of torch or transformers.
    return lines or differing("identity", expected["identity"], actual["identity"])


def differing(what: str, expected: Any, actual: Any) -> list[str]:
    """Return a sentence where two values differ."""
    return [] if expected == actual else [f"{what} is {actual!r}, expected {expected!r}"]
