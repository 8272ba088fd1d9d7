"""Verify that a folder or repository is the model of its manifest: its files first, then every way of loading it.

The ways are the Auto class, and the Auto class in a process that has no qkv, with the code of the folder where it has
any. Nothing is loaded unless every file is right, and the code of a repository runs only where the caller trusts it.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from torch import Tensor

import qkv
from qkv.modeling.conversion.files import CONFIG, located, read_json
from qkv.scripts.common import inspector
from qkv.scripts.common.inspector import Job
from qkv.scripts.conversion.probe import probe_inputs
from qkv.scripts.publishing.export.tested_releases import spelled, stated_releases, untested
from qkv.scripts.publishing.integrity.loading import (
    UNCHECKED,
    Loaded,
    auto_class,
    installed_class,
    load_in_clean_process,
    load_quietly,
)
from qkv.scripts.publishing.integrity.manifest import (
    SIGNATURE,
    IntegrityError,
    Manifest,
    Row,
    brief,
    check_files,
    differences,
    file_row,
    files_read,
    identity,
    load_findings,
    read_manifest,
)
from qkv.scripts.publishing.integrity.signature import CHECK, signature_row

IDENTITY = re.compile(r"[0-9a-f]{16,64}")
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token")
# Tolerance between outputs of the installed code and of another version, relative to the largest output.
TOLERANCE = 1e-5
Outputs = dict[str, Tensor]


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
    folder = Path(target).expanduser() if is_local else located(target, revision, fetch=fetch)
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


def checked(source: str | os.PathLike[str], options: dict[str, Any]) -> dict[str, Any]:
    """Compare a folder or repository with its manifest, for QKV_VERIFY, and return the options to load it with.

    A repository is loaded at the commit that was compared. IntegrityError names a file that differs from the manifest,
    or says that there is none.
    """
    if UNCHECKED.get():
        return options
    chosen = {name: options[name] for name in HUB_OPTIONS if name in options}
    root = located(source, options.get("revision"), fetch=partial(fetch, **chosen))
    folder = root / (options.get("subfolder") or "")
    check_files(folder, f"{source} is not what its manifest says, and QKV_VERIFY refuses it")
    return options if root == Path(source) else {**options, "revision": root.name}


def checks(
    folder: Path, expect: str | Path | None, *, trusted: bool, signed_by: str | os.PathLike[str] | None = None
) -> Iterator[Row]:
    """Yield every check in order; load only where the files have no findings, and stop at a wrong signature."""
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
        expected = read_manifest(Path(expect))
        wanted = expected["identity"]
        lines += differences("file", files_read(expected), files_read(actual))
        for kind, table in expected["loaded"].items():
            lines += differences(kind, table, actual["loaded"][kind])
    elif IDENTITY.fullmatch(wanted := str(expect)) is None:
        raise ValueError(f"{expect!r} is neither a folder nor an identity, which has 16 to 64 digits 0-9 a-f")
    # Loading may make another model of the same files, with another release of torch or transformers.
    is_same = actual["identity"].startswith(wanted)
    return lines or ([] if is_same else [f"identity is {actual['identity']}, expected {wanted}"])


def load_rows(folder: Path, manifest: Manifest, *, trusted: bool) -> Iterator[Row]:
    """Yield a row for each way of loading; the outputs of both must be the same."""
    config, name = read_json(folder / CONFIG), manifest["class"]
    model_class, auto, is_remote = installed_class(folder), auto_class(config, name), bool(config.get("auto_map"))
    inputs, outputs = class_inputs(model_class, folder), Outputs()
    loader = getattr(transformers, auto) if auto else model_class
    job = Job(folder, str(auto), inputs, fingerprints=True, remote=is_remote)
    unknown = "" if model_class else f"neither qkv nor transformers has {name}"
    untrusted = "its code runs only with --expect or --trust-remote-code" if is_remote and not trusted else ""
    is_other = is_remote and manifest["versions"]["qkv"] != qkv.__version__
    ways: list[tuple[str, str, Callable[[], Loaded], float]] = [
        (auto or name, unknown, lambda: loaded(loader, folder, inputs), 0.0),
        (
            f"{'remote code' if is_remote else 'without qkv'}, {auto or name}",
            untrusted if auto else f"{name} has no Auto class",
            lambda: load_in_clean_process([job])[0],
            TOLERANCE if is_other else 0.0,
        ),
    ]
    for title, reason, load, tolerance in ways:
        if reason:
            yield Row(title, detail=reason, skipped=True)
            continue
        try:
            result = load()
        except Exception as error:
            yield Row(title, [f"does not load: {' '.join(str(error).split()) or type(error).__name__}"])
        else:
            outputs = outputs or result.outputs
            yield compared(title, result, manifest, outputs, tolerance)


def loaded(loader: Any, folder: Path, inputs: Outputs | None = None) -> Loaded:
    """Load in this process, run, and let the model go."""
    model, report = load_quietly(loader, folder)
    return Loaded(report, {} if inputs is None else inspector.outputs(model, inputs))


def class_inputs(model_class: Any, folder: Path) -> Outputs | None:
    """Return inputs for the model of a folder, None where its inputs are not known."""
    try:
        with torch.device("meta"):
            model = model_class(model_class.config_class.from_pretrained(folder))
        return probe_inputs(model, model)
    except Exception:
        return None


def compared(name: str, result: Loaded, manifest: Manifest, reference: Outputs, tolerance: float = 0.0) -> Row:
    """Compare one load with the manifest, and its outputs with the first load's, within so much of the largest."""
    report = result.report
    is_other = report["class"] != manifest["class"]
    lines = [f"gives {report['class']}, expected {manifest['class']}"] if is_other else []
    lines += differences("tie of", manifest["ties"], report["ties"]) + load_findings(report)
    for kind, entries in report["loaded"].items():
        lines += differences(kind, manifest["loaded"][kind], entries)
    detail = f"{sum(map(len, report['loaded'].values()))} tensors equal"
    if result.outputs:
        detail += f", outputs equal {f'to {tolerance:g}' if tolerance else 'bit by bit'}"
        names = sorted(result.outputs.keys() | reference.keys())
        pairs = {each: (result.outputs.get(each), reference.get(each)) for each in names}
        wrong = {each: both for each, both in pairs.items() if not is_within(*both, tolerance)}
        lines += [f"output {each} differs from that of the first load{apart(*both)}" for each, both in wrong.items()]
    return Row(name, lines, detail)


def apart(one: Tensor | None, other: Tensor | None) -> str:
    """Return by how much two tensors differ, in words; empty where they cannot be compared."""
    if one is None or other is None or one.shape != other.shape or not one.numel():
        return ""
    return f" by up to {(one.double() - other.double()).abs().max():.3g}, with numbers up to {other.abs().max():.3g}"


def is_within(one: Tensor | None, other: Tensor | None, tolerance: float) -> bool:
    """Return whether two tensors have the same bits, or values within the tolerance."""
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    largest = float(other.abs().max().clamp(min=1)) if one.is_floating_point() else 0.0
    is_close = torch.allclose(one, other, rtol=0.0, atol=tolerance * largest)
    return inspector.identical(one, other) or (tolerance > 0 and is_close)
