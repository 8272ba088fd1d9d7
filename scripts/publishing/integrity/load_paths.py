"""Load a folder as its users do, and compare tensors, keys, ties and outputs bit by bit with its manifest.

The ways: the Auto class, and the Auto class in a process that has no qkv, with the code of the folder where it has any.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import qkv
from qkv.modeling.conversion.files import CONFIG, read_json
from qkv.scripts.common import inspector
from qkv.scripts.common.inspector import Job
from qkv.scripts.conversion.probe import probe_inputs
from qkv.scripts.publishing.integrity.clean_process import Loaded, load_in_clean_process
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.loading import auto_class, installed_class, load_quietly
from qkv.scripts.publishing.integrity.manifest import Manifest, differences, load_findings

Outputs = dict[str, Tensor]
# Outputs of code of another version may differ from those of the installed code by so much of the largest.
TOLERANCE = 1e-5


def load_rows(folder: Path, manifest: Manifest, *, trusted: bool) -> Iterator[Row]:
    """Yield a row for each way of loading; the outputs of both must be the same."""
    config, name, outputs = read_json(folder / CONFIG), manifest["class"], Outputs()
    model_class, auto, is_remote = installed_class(folder), auto_class(config, name), bool(config.get("auto_map"))
    inputs = class_inputs(model_class, folder)
    if model_class is None:
        yield Row(auto or name, detail=f"neither qkv nor transformers has {name}", skipped=True)
    else:
        loader = getattr(transformers, auto) if auto else model_class
        row, outputs = load_row(auto or name, lambda: loaded(loader, folder, inputs), manifest, outputs)
        yield row
    title = f"{'remote code' if is_remote else 'without qkv'}, {auto}"
    if auto is None:
        yield Row("without qkv", detail=f"{name} has no Auto class", skipped=True)
    elif is_remote and not trusted:
        yield Row(title, detail="its code runs only with --expect or --trust-remote-code", skipped=True)
    else:
        job = Job(folder, auto, inputs, fingerprints=True, remote=is_remote)
        is_other = is_remote and manifest["versions"]["qkv"] != qkv.__version__
        tolerance = TOLERANCE if is_other else 0.0
        yield load_row(title, lambda: load_in_clean_process([job])[0], manifest, outputs, tolerance)[0]


def load_row(
    title: str, load: Callable[[], Loaded], manifest: Manifest, reference: Outputs, tolerance: float = 0.0
) -> tuple[Row, Outputs]:
    """Return the row of a load, and its outputs."""
    try:
        result = load()
    except Exception as error:
        return Row(title, [f"does not load: {' '.join(str(error).split()) or type(error).__name__}"]), reference
    return compared(title, result, manifest, reference or result.outputs, tolerance), result.outputs


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
        lines += [
            f"output {each} differs from that of the first load"
            for each in sorted(result.outputs.keys() | reference.keys())
            if not is_within(result.outputs.get(each), reference.get(each), tolerance)
        ]
    return Row(name, lines, detail)


def is_within(one: Tensor | None, other: Tensor | None, tolerance: float) -> bool:
    """Return whether two tensors have the same bits, or values within the tolerance."""
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    largest = float(other.abs().max().clamp(min=1)) if one.is_floating_point() else 0.0
    is_close = torch.allclose(one, other, rtol=0.0, atol=tolerance * largest)
    return inspector.identical(one, other) or (tolerance > 0 and is_close)
