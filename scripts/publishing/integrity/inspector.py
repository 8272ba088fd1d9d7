"""What does a model hold after it was loaded, and what does it answer? Imported, or run by path where there is no qkv.

Run, it reads one order as JSON from standard input: `threads`, `report` (a file to write, with an entry for each job),
`inputs` (a safetensors file, or none) and `jobs`, each with `folder`, `auto_class`, `options` of `from_pretrained` and
`outputs` (a safetensors file to write if there are inputs).
"""

import copy
import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Numbers are moved, cast and hashed so many at a time.
CHUNK = 2**24
UNFILLED = "never filled"
Held = dict[str, dict[str, str]]


def fingerprint(tensor: Tensor, dtype: torch.dtype | None = None) -> str:
    """Dtype, shape and SHA-256 of a tensor, or of its cast, wherever and however it lies in memory."""
    dtype = dtype or tensor.dtype
    title = f"{str(dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if tensor.is_meta:
        return f"{title} {UNFILLED}"
    digest = hashlib.sha256(title.encode())
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    for part in numbers.detach().reshape(-1).split(CHUNK):
        part = part.cpu() if tensor.is_complex() else part.cpu().to(dtype)
        digest.update(part.contiguous().view(torch.uint8).numpy())
    return f"{title} {digest.hexdigest()}"


def tensors(model: Any) -> Iterator[tuple[str, str, Tensor]]:
    """(kind, name, tensor) of all that a model computes with: what its files hold, and what loading has to fill."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield "parameter", name, parameter
    for name, buffer in model.named_buffers(remove_duplicate=False):
        yield "buffer", name, buffer
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield "attribute", f"{prefix}.{name}".lstrip("."), value


def held(model: Any) -> Held:
    """{kind: {name: fingerprint}} of all that a model computes with."""
    found: Held = {"parameter": {}, "buffer": {}, "attribute": {}}
    known: dict[int, str] = {}
    for kind, name, tensor in tensors(model):
        if id(tensor) not in known:  # tied tensors are large, and hashed once
            known[id(tensor)] = fingerprint(tensor)
        found[kind][name] = known[id(tensor)]
    return found


def ties(model: Any) -> dict[str, str]:
    """{name: first name of the same parameter}."""
    first: dict[int, str] = {}
    names = ((name, first.setdefault(id(p), name)) for name, p in model.named_parameters(remove_duplicate=False))
    return {name: source for name, source in names if name != source}


def load(loader: Any, folder: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A model in evaluation mode, and what loading it gave: class, dtype, tensors, ties, keys that did not fit."""
    model, info = loader.from_pretrained(folder, output_loading_info=True, **options)
    report = {
        "class": type(model).__name__,
        "module": type(model).__module__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "loaded": held(model),
        "ties": ties(model),
        "keys": {
            kind: sorted(key if isinstance(key, str) else key[0] for key in info[f"{kind}_keys"])
            for kind in ("missing", "unexpected", "mismatched")
        },
    }
    return model.eval(), report


@torch.no_grad()
def answered(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor that a forward pass returns, by its name."""
    # Weights are mapped from the file at odd addresses, which changes the last bits of matrix products.
    model = copy.deepcopy(model)
    given = {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    output = model(**given)
    return {name: value.clone().contiguous() for name, value in output.items() if isinstance(value, Tensor)}


def main() -> None:
    """Do every job."""
    if "qkv" in sys.modules:
        raise RuntimeError("qkv was imported before it could be hidden")
    # From here on importing it fails, however it is installed.
    sys.modules["qkv"] = None  # type: ignore[assignment]
    import transformers
    from safetensors.torch import load_file, save_file

    order = json.load(sys.stdin)
    torch.set_num_threads(order["threads"])
    inputs = load_file(order["inputs"]) if order["inputs"] else None
    found = []
    for job in order["jobs"]:
        model, report = load(getattr(transformers, job["auto_class"]), job["folder"], job["options"])
        if inputs is not None:
            save_file(answered(model, inputs), job["outputs"])
        found.append(report)
        del model
    with open(order["report"], "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
