"""Load a model, fingerprint its tensors and run it: imported, or run by path in a separate process.

Arguments of the process: threads, qkv's `__init__.py` and its folder to import it from there, or two empty words to
hide it, and the folders of jobs. Each has a `job.json` with the fields of `Job`, and gets a `report.json`; `inputs`
gives it `outputs`, safetensors both.
"""

import copy
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

STARTED = perf_counter()  # before torch is imported, which is part of a first load

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

# Numbers of a tensor that are moved and hashed at a time.
CHUNK = 2**24
UNFILLED = "never filled"
Held = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Job:
    """A folder or a repository of the Hub, the Auto class that loads it, and the work to be done with the model.

    `options` are those of `from_pretrained`; unless `remote` is false, the code of the source has to be used. `inputs`
    are for a forward pass. `again` saves the loaded model, and loads and runs the copy. `fingerprints` reports every
    tensor, `timed` the seconds of a first load, imports included, and of a second. `generated` are options of calls of
    `generate`, whose tokens are reported.
    """

    source: Path | str
    auto_class: str
    inputs: Mapping[str, Tensor] | None = None
    revision: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    remote: bool = True
    again: bool = False
    fingerprints: bool = False
    timed: bool = False
    generated: Sequence[Mapping[str, Any]] = field(default_factory=list)


def fingerprint(tensor: Tensor) -> str:
    """Return dtype, shape and SHA-256 of a tensor, of any device and memory layout."""
    title = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if tensor.is_meta:
        return f"{title} {UNFILLED}"
    digest = hashlib.sha256(title.encode())
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    for part in numbers.detach().reshape(-1).split(CHUNK):
        digest.update(part.cpu().contiguous().view(torch.uint8).numpy())
    return f"{title} {digest.hexdigest()}"


def identical(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same dtype, shape and bits: -0.0 is not 0.0, and NaN equals itself."""
    if one.dtype != other.dtype or one.shape != other.shape or one.is_meta or other.is_meta:
        return False
    first, second = (each.detach().cpu().contiguous().flatten().view(torch.uint8) for each in (one, other))
    return torch.equal(first, second)


def tensors(model: Any) -> Iterator[tuple[str, str, Tensor]]:
    """Yield (kind, name, tensor) of every parameter, buffer and tensor attribute of a model."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield "parameter", name, parameter
    for name, buffer in model.named_buffers(remove_duplicate=False):
        yield "buffer", name, buffer
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield "attribute", f"{prefix}.{name}".lstrip("."), value


def held(model: Any) -> Held:
    """Return {kind: {name: fingerprint}} of a model."""
    fingerprints: Held = {"parameter": {}, "buffer": {}, "attribute": {}}
    seen: dict[int, str] = {}
    for kind, name, tensor in tensors(model):
        if id(tensor) not in seen:  # tied tensors are hashed once
            seen[id(tensor)] = fingerprint(tensor)
        fingerprints[kind][name] = seen[id(tensor)]
    return fingerprints


def ties(model: Any) -> dict[str, str]:
    """Return {name of a tied parameter: the first name of the same tensor}."""
    first: dict[int, str] = {}
    names = ((name, first.setdefault(id(p), name)) for name, p in model.named_parameters(remove_duplicate=False))
    return {name: source for name, source in names if name != source}


def load_reported(
    loader: Any, source: str, options: dict[str, Any], describe: Callable[[Any], Held] | None = held
) -> tuple[Any, dict[str, Any]]:
    """Load a model in evaluation mode, and report its class, dtype, fingerprints, ties and keys that did not fit."""
    model, info = loader.from_pretrained(source, output_loading_info=True, **options)
    report = {
        "class": type(model).__name__,
        "module": type(model).__module__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "loaded": describe(model) if describe else {},
        "ties": ties(model),
        "keys": {
            kind: sorted(key if isinstance(key, str) else key[0] for key in info[f"{kind}_keys"])
            for kind in ("missing", "unexpected", "mismatched")
        },
    }
    return model.eval(), report


@torch.no_grad()
def outputs(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return every tensor of the model's output on the CPU, by its name."""
    # Copied, because memory alignment decides the last bits of matrix products.
    model = copy.deepcopy(model).cpu().eval()
    given = {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    # Asking for hidden states turns off all savings at padding, logits and tokens of the last layer.
    output = model(**{name: value.cpu() for name, value in given.items()}, output_hidden_states=True)
    return {name: value.clone().contiguous() for name, value in output.items() if isinstance(value, Tensor)}


def do(job: Job, folder: Path) -> dict[str, Any]:
    """Do a job with the files of its folder, and return its report."""
    import transformers
    from safetensors.torch import load_file, save_file

    loader, options = getattr(transformers, job.auto_class), {**job.options, "trust_remote_code": job.remote}
    here = {**options, "revision": job.revision}
    model, report = load_reported(loader, str(job.source), here, held if job.fingerprints else None)
    if job.timed:
        loaded = perf_counter()
        loader.from_pretrained(job.source, **here)
        report["seconds"] = {"first": loaded - STARTED, "again": perf_counter() - loaded}
    if job.remote and not report["module"].startswith("transformers_modules."):
        raise RuntimeError(f"{job.source} was loaded with code from {report['module']}, not with its own")
    if job.again:
        model.save_pretrained(folder / "copy")
        model, _ = load_reported(loader, str(folder / "copy"), options, None)
    if (folder / "inputs").is_file():
        inputs = load_file(folder / "inputs")
        save_file(outputs(model, inputs), folder / "outputs")
        report["tokens"] = [model.generate(**inputs, **each).tolist() for each in job.generated]
    return report


def main() -> None:
    """Do the job of every folder."""
    threads, package, place, *folders = sys.argv[1:]
    if "qkv" in sys.modules:
        raise RuntimeError("qkv was imported before it could be hidden")
    # From here on importing it fails, however it is installed.
    sys.modules["qkv"] = None  # type: ignore[assignment]
    if package:
        spec: Any = importlib.util.spec_from_file_location("qkv", package, submodule_search_locations=[place])
        sys.modules["qkv"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["qkv"])
    torch.set_num_threads(int(threads))
    for folder in map(Path, folders):
        job = Job(**json.loads((folder / "job.json").read_text(encoding="utf-8")))
        (folder / "report.json").write_text(json.dumps(do(job, folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
