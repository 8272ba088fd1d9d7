"""Load a folder in every way users do, and compare tensors, keys, ties and outputs bit by bit with its manifest.

Outputs of a folder's own code of another version may differ from those of the installed code in their last bits.

The ways: its class, twice; its Auto class, plain, with `device_map` and in bfloat16; and the Auto class in a process
that has no qkv, with the code of the folder where it has any.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import qkv
from qkv.modeling.conversion.files import CONFIG, named, read_json
from qkv.scripts.common import inspector
from qkv.scripts.common.inspector import Job
from qkv.scripts.conversion.probe import probe_inputs
from qkv.scripts.publishing.integrity import clean_process
from qkv.scripts.publishing.integrity.clean_process import Loaded
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.loading import auto_class, installed_class, load_unchecked
from qkv.scripts.publishing.integrity.manifest import Manifest, differences, expected_load, load_findings

Outputs = dict[str, Tensor]
# How the report calls a way of loading, and its options of `from_pretrained`.
LOADS = {
    "": {},
    ', device_map="cpu"': {"device_map": "cpu"},
    ', device_map="auto"': {"device_map": "auto"},
    ", bfloat16": {"dtype": "bfloat16"},
}
# Versions of qkv compute the same to so much of the largest output.
TOLERANCE = 1e-5
CLEAN = {way: options for way, options in LOADS.items() if options.get("device_map") != "auto"}


def load_rows(folder: Path, manifest: Manifest, *, trusted: bool) -> Iterator[Row]:
    """Yield a row for each way of loading; the outputs of all must be those of the first."""
    model_class, auto = installed_class(folder), auto_class(read_json(folder / CONFIG), manifest["class"])
    if model_class is None:
        yield Row("class", detail=f"neither qkv nor transformers has {manifest['class']}", skipped=True)
    checks = LoadChecks(folder, manifest, None if model_class is None else class_inputs(model_class, folder))
    for name, loader, options in installed_paths(model_class, auto):
        # With an accelerator it computes there, with other last bits.
        inputs = None if options.get("device_map") == "auto" else checks.inputs
        try:
            result = loaded(loader, folder, inputs, **options)
        except Exception as error:
            yield Row(name, [failure(error)])
        else:
            yield checks.row(name, result, options)
    if auto is None:
        yield Row("without qkv", detail=f"{manifest['class']} has no Auto class", skipped=True)
    else:
        yield from clean_rows(checks, auto, trusted=trusted)


def loaded(loader: Any, folder: Path, inputs: Outputs | None = None, **options: Any) -> Loaded:
    """Load in this process, run, and let the model go."""
    model, report = load_unchecked(loader, folder, **options)
    return Loaded(report, {} if inputs is None else inspector.outputs(model, inputs))


def class_inputs(model_class: Any, folder: Path) -> Outputs | None:
    """Return inputs for the model of a folder, None where it is not known what it reads."""
    try:
        with torch.device("meta"):
            model = model_class(model_class.config_class.from_pretrained(folder))
        return probe_inputs(model, model)
    except Exception:
        return None


def installed_paths(model_class: Any, auto: str | None) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yield (name, loader, options) of the loads in this process."""
    if model_class is not None:
        yield from ((f"{model_class.__name__}{again}", model_class, {}) for again in ("", ", again"))
        if auto is not None:
            yield from ((f"{auto}{way}", getattr(transformers, auto), options) for way, options in LOADS.items())


def clean_rows(checks: "LoadChecks", auto: str, *, trusted: bool) -> Iterator[Row]:
    """Yield the rows of the loads in a process that has no qkv."""
    remote = bool(read_json(checks.folder / CONFIG).get("auto_map"))
    title = f"{'remote code' if remote else 'without qkv'}, {auto}"
    if remote and not trusted:
        yield Row(title, detail="its code runs only with --expect or --trust-remote-code", skipped=True)
        return
    jobs = [
        Job(checks.folder, auto, checks.inputs, options=options, remote=remote, fingerprints=True)
        for options in CLEAN.values()
    ]
    try:
        results = clean_process.load_in_clean_process(jobs)
    except RuntimeError as error:
        yield Row(title, [failure(error)])
        return
    tolerance = TOLERANCE if remote and checks.manifest["versions"].get("qkv") != qkv.__version__ else 0.0
    for (way, options), result in zip(CLEAN.items(), results, strict=True):
        yield checks.row(f"{title}{way}", result, options, tolerance)


def failure(error: Exception) -> str:
    """Return an error on loading in one line."""
    return f"does not load: {' '.join(str(error).split()) or type(error).__name__}"


@dataclass
class LoadChecks:
    """Compare every load of a folder with its manifest, and its outputs with those of the first for the same inputs."""

    folder: Path
    manifest: Manifest
    inputs: Outputs | None = None
    reference: Outputs = field(default_factory=dict)

    def row(self, name: str, result: Loaded, options: dict[str, str], tolerance: float = 0.0) -> Row:
        """Compare one load with the manifest, and its outputs with the first load's."""
        manifest, report, self.reference = self.manifest, result.report, self.reference or result.outputs
        # A folder of an earlier version loads as the class that has its place today.
        names = (manifest["class"], named(self.folder)[1])
        lines = [] if report["class"] in names else [f"gives {report['class']}, expected {manifest['class']}"]
        for tied in sorted({tied for tied, _ in report["ties"].items() ^ manifest["ties"].items()}):
            now, then = (each["ties"].get(tied, "nothing") for each in (report, manifest))
            lines.append(f"parameter {tied} is tied to {now}, the manifest says {then}")
        lines += load_findings(report)
        dtype = options.get("dtype") or str(manifest["dtype"])
        expected = expected_load(manifest, self.folder, dtype, report["loaded"])
        for kind, entries in report["loaded"].items():
            lines += differences(kind, expected.get(kind, {}), entries)
        detail = f"{sum(map(len, report['loaded'].values()))} tensors equal"
        if result.outputs:
            reference = None if "dtype" in options else self.reference
            lines += output_findings(result.outputs, reference, tolerance)
            equal = "finite" if reference is None else f"equal to {tolerance:g}" if tolerance else "equal bit by bit"
            detail += f", outputs {equal}"
        return Row(name, lines, detail)


def output_findings(outputs: Outputs, reference: Outputs | None, tolerance: float = 0.0) -> list[str]:
    """Compare outputs with the reference's; without one they must be finite.

    A `tolerance` allows differences of so much of the largest value, without one every bit must be the same.
    """
    if reference is None:
        return [f"output {name} is not finite" for name, value in outputs.items() if not torch.isfinite(value).all()]
    return [
        f"output {name} differs from that of the first load"
        for name in sorted(outputs.keys() | reference.keys())
        if name not in outputs or name not in reference or not within(outputs[name], reference[name], tolerance)
    ]


def within(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Return whether two tensors have the same bits, or values within the tolerance."""
    if inspector.identical(one, other) or not tolerance or one.shape != other.shape or not one.is_floating_point():
        return inspector.identical(one, other)
    largest = float(other.abs().max().clamp(min=1))
    return one.dtype == other.dtype and torch.allclose(one, other, rtol=0.0, atol=tolerance * largest)
