"""Load a folder in every way users do, and compare tensors, keys, ties and outputs bit by bit with its manifest.

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

from qkv.modeling.conversion.files import CONFIG, named, read_json
from qkv.scripts.publishing.integrity import clean_process, inspector
from qkv.scripts.publishing.integrity.clean_process import Loaded
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.inspector import Job
from qkv.scripts.publishing.integrity.loading import auto_class, installed_class, load_unchecked
from qkv.scripts.publishing.integrity.manifest import Manifest, differences, expected_load, load_findings
from qkv.scripts.publishing.integrity.probe import probe_inputs

Outputs = dict[str, Tensor]


@dataclass(frozen=True)
class LoadPath:
    """Options of `from_pretrained`, how the report calls them, and whether a forward pass follows."""

    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    runs: bool = True

    @property
    def rounded(self) -> bool:
        """Return whether the weights are cast."""
        return "dtype" in self.options


PLAIN, ON_CPU = LoadPath(), LoadPath(', device_map="cpu"', {"device_map": "cpu"})
ROUNDED = LoadPath(", bfloat16", {"dtype": "bfloat16"})
# With an accelerator it computes there, with other last bits.
ANYWHERE = LoadPath(', device_map="auto"', {"device_map": "auto"}, runs=False)


def load_rows(folder: Path, manifest: Manifest, *, trusted: bool) -> Iterator[Row]:
    """Yield a row for each way of loading; the outputs of all must be those of the first."""
    model_class, auto = installed_class(folder), auto_class(read_json(folder / CONFIG), manifest["class"])
    if model_class is None:
        yield Row("class", detail=f"neither qkv nor transformers has {manifest['class']}", skipped=True)
    inputs = None if model_class is None else class_inputs(model_class, folder)
    reference: Outputs = {}
    for name, way, loader in installed_paths(model_class, auto):
        try:
            result = loaded(loader, folder, inputs if way.runs else None, **way.options)
        except Exception as error:
            yield Row(name, [failure(error)])
            continue
        reference = reference or result.outputs
        yield judged(name, way, result, (manifest, folder), reference)
    if auto is None:
        yield Row("without qkv", detail=f"{manifest['class']} has no Auto class", skipped=True)
    else:
        yield from clean_rows(folder, auto, manifest, (inputs, reference), trusted=trusted)


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


def installed_paths(model_class: Any, auto: str | None) -> Iterator[tuple[str, LoadPath, Any]]:
    """Yield (name, path, loader) of the loads in this process."""
    if model_class is not None:
        yield from ((f"{model_class.__name__}{again}", PLAIN, model_class) for again in ("", ", again"))
    if model_class is not None and auto is not None:
        loader = getattr(transformers, auto)
        yield from ((f"{auto}{way.name}", way, loader) for way in (PLAIN, ON_CPU, ANYWHERE, ROUNDED))


def clean_rows(
    folder: Path, auto: str, manifest: Manifest, expected: tuple[Outputs | None, Outputs], *, trusted: bool
) -> Iterator[Row]:
    """Yield the rows of the loads in a process that has no qkv; `expected` are inputs and reference outputs."""
    inputs, reference = expected
    remote = bool(read_json(folder / CONFIG).get("auto_map"))
    title = f"{'remote code' if remote else 'without qkv'}, {auto}"
    if remote and not trusted:
        yield Row(title, detail="its code runs only with --expect or --trust-remote-code", skipped=True)
        return
    ways = (PLAIN, ON_CPU, ROUNDED)
    jobs = [Job(folder, auto, inputs, options=way.options, remote=remote, fingerprints=True) for way in ways]
    try:
        results = clean_process.load_in_clean_process(jobs)
    except RuntimeError as error:
        yield Row(title, [failure(error)])
        return
    for way, each in zip(ways, results, strict=True):
        reference = reference or each.outputs
        yield judged(f"{title}{way.name}", way, each, (manifest, folder), reference)


def failure(error: Exception) -> str:
    """Return an error on loading in one line."""
    return f"does not load: {' '.join(str(error).split()) or type(error).__name__}"


def judged(name: str, way: LoadPath, result: Loaded, target: tuple[Manifest, Path], reference: Outputs) -> Row:
    """Compare one load with the manifest of a folder, and its outputs with the first load's."""
    (manifest, folder), report = target, result.report
    # A folder of an earlier version loads as the class that has its place today.
    names = (manifest["class"], named(folder)[1])
    lines = [] if report["class"] in names else [f"gives {report['class']}, expected {manifest['class']}"]
    for tied in sorted({tied for tied, _ in report["ties"].items() ^ manifest["ties"].items()}):
        now, then = (each["ties"].get(tied, "nothing") for each in (report, manifest))
        lines.append(f"parameter {tied} is tied to {now}, the manifest says {then}")
    lines += load_findings(report)
    expected = expected_load(manifest, folder, str(way.options.get("dtype", manifest["dtype"])), report["loaded"])
    for kind, entries in report["loaded"].items():
        lines += differences(kind, expected.get(kind, {}), entries)
    lines += output_findings(result.outputs, None if way.rounded else reference) if result.outputs else []
    count = sum(map(len, report["loaded"].values()))
    outputs = "finite" if way.rounded else "equal bit by bit"
    return Row(name, lines, f"{count} tensors equal" + (f", outputs {outputs}" if result.outputs else ""))


def output_findings(outputs: Outputs, reference: Outputs | None) -> list[str]:
    """Compare outputs with the reference's; without one they must be finite."""
    if reference is None:
        return [f"output {name} is not finite" for name, value in outputs.items() if not torch.isfinite(value).all()]
    return [
        f"output {name} differs from that of the first load"
        for name in sorted(outputs.keys() | reference.keys())
        if name not in outputs or name not in reference or not inspector.identical(outputs[name], reference[name])
    ]
