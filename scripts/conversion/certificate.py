"""Certify that two checkpoints are one model: both are read from their files and compared layer by layer."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from qkv.modeling.conversion.convert import is_ours, official_conversions, open_checkpoint, read, write
from qkv.modeling.conversion.files import stored_tensors
from qkv.scripts.common.environment import versions
from qkv.scripts.common.inspector import identical
from qkv.scripts.common.phases import phase
from qkv.scripts.conversion.probe import SEED, generate, in_double_precision, probe_inputs, probe_outputs

# Tolerance in each precision, relative to the largest number of a layer. In double precision nothing is rounded
# to single, so that any mistake shows; in single the order of sums does. Brain floats are shown and not judged.
LIMITS = {"float64": 1e-10, "float32": 1e-5, "bfloat16": None}
# Where transformers itself keeps a table of the model in single precision: half the distance of two such numbers at 1.
ONE_ROUNDING = 2.0**-24
Certificate = dict[str, Any]


def certify(source: Path, target: Path) -> Certificate:
    """Compare two folders, one of transformers and one of qkv."""
    certificate: Certificate = {"versions": versions(), "seed": SEED, "limits": dict(LIMITS), "layers": {}}
    for name in LIMITS:
        with phase(f"comparing in {name}"):
            compare(source, target, name, certificate)
    with phase("converting back"):
        certificate["way back"] = convert_back(source, target)
    certificate["first diverging layer"] = first_diverging(certificate)
    certificate["passed"] = not problems(certificate)
    return certificate


def compare(source: Path, target: Path, name: str, certificate: Certificate) -> None:
    """Compare two models in one precision; in double precision also count them, and compare generated tokens."""
    dtype, within = getattr(torch, name), in_double_precision if name == "float64" else nullcontext
    one, other = (open_model(folder, dtype, within) for folder in (source, target))
    ours, official = (other, one) if is_ours(target) else (one, other)
    inputs = probe_inputs(ours, official)
    with within():
        for layer, difference in differences(probe_outputs(one, inputs), probe_outputs(other, inputs)):
            certificate["layers"].setdefault(layer, {})[name] = difference
        if name != "float64":
            return
        certificate |= {"source": count(source, one), "target": count(target, other)}
        if rounded_tables(official):
            certificate["limits"][name] = ONE_ROUNDING
        if one.can_generate() and other.can_generate():
            certificate["generation"] = {
                kind: torch.equal(generate(one, inputs, beams), generate(other, inputs, beams))
                for kind, beams in (("greedy", 1), ("3 beams", 3))
            }


def open_model(
    folder: Path, dtype: Any = "auto", within: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> PreTrainedModel:
    """Load the model of a folder in evaluation mode."""
    model = open_checkpoint(folder, dtype=dtype, within=within, attn_implementation="eager").eval()
    model.set_experts_implementation("eager")  # products of groups take no double precision
    return model


def rounded_tables(official: PreTrainedModel) -> bool:
    """Return whether an official model rounds positions to single precision that ours computes in use.

    Frequencies that were rounded to half precision are the same on both sides.
    """
    stored = [tensor for name, tensor in official.state_dict().items() if name.endswith("inv_freq")]
    sinusoids = any("sinusoids" in row.changes for each in official_conversions(official) for row in each.rows)
    return sinusoids or any(not torch.equal(tensor, tensor.half().to(tensor)) for tensor in stored)


def count(folder: Path, model: PreTrainedModel) -> dict[str, Any]:
    """Count the parameters, buffers and stored tensors of a model, each tensor once."""
    return {
        "class": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "parameter tensors": sum(1 for _ in model.parameters()),
        "buffers": sum(1 for _ in model.buffers()),
        "stored tensors": len(stored_tensors(folder)),
    }


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield (output, its largest and mean difference and its largest number) of each output of both models."""
    for name, expected in one.items():
        apart = torch.tensor(torch.inf)
        if name in other and other[name].shape == expected.shape:
            apart = (other[name].double() - expected.double()).abs()
        elif name not in other and "layers" not in name:
            continue
        yield name, {"max": apart.max().item(), "mean": apart.mean().item(), "scale": expected.abs().max().item()}


def first_diverging(certificate: Certificate) -> str | None:
    """Return the first layer, in the order of computation, that differs by more than its limit in any precision."""
    for layer, measured in certificate["layers"].items():
        for name, limit in certificate["limits"].items():
            # NaN fails, too.
            if limit is not None and not measured[name]["max"] <= limit * measured[name]["scale"]:
                return layer
    return None


def convert_back(source: Path, target: Path) -> dict[str, Any]:
    """Convert the target back, and compare every tensor with the source bit by bit."""
    original = open_model(source)
    expected = {name: value for name, value in original.state_dict().items() if name not in unread(original)}
    # What the files hold under the same names, which a config with another dtype would have changed on the way.
    for file in set(stored_tensors(source).values()):
        expected |= {name: tensor for name, tensor in load_file(file).items() if name in expected}
    model: Any = open_model(target)
    kind = original.config.model_type
    try:
        if is_ours(target):
            model = write(model, copies=False, model_type=kind)
        else:
            model = read(model, copies=False, wanted=type(original))
    except ValueError as error:
        return {"tensors": len(expected), "different": sorted(expected), "error": str(error)}
    again = {name: value for name, value in model.state_dict().items() if name not in unread(model)}
    apart = {name for name, tensor in expected.items() if name not in again or not identical(tensor, again[name])}
    return {"tensors": len(expected), "different": sorted(apart | (again.keys() - expected.keys()))}


def unread(model: PreTrainedModel) -> set[str]:
    """Return the unused tensors of an official model, which a conversion leaves out and makes anew."""
    if model.config.model_type.startswith("qkv_"):
        return set()
    rows = [row for each in official_conversions(model) for row in each.rows if "unread" in row.changes]
    return {name for row in rows for name in row.theirs}


def problems(certificate: Certificate) -> list[str]:
    """Return the faults of the conversion, the most important first."""
    said = []
    if layer := certificate["first diverging layer"]:
        worst = certificate["layers"][layer]
        apart = ", ".join(f"{worst[name]['max']:.1e} in {name}" for name in ("float64", "float32"))
        scale = worst["float64"]["scale"]
        said.append(f"the first diverging layer is {layer} (by {apart}, at numbers up to {scale:.1e})")
    other = [kind for kind, equal in certificate.get("generation", {}).items() if not equal]
    said += [f"{kind} generation gives other tokens" for kind in other]
    if different := certificate["way back"]["different"]:
        said.append(f"converted back, {len(different)} tensors are others, {different[0]} the first")
    return said
