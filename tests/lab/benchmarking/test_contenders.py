"""Contenders: words choose them, and each takes over the weights."""

import pytest
import torch

from qkv.scripts.lab.benchmarking.batches import batch
from qkv.scripts.lab.benchmarking.contenders import CONTENDERS, PATHS, THEIRS, candidate, chosen_contenders
from qkv.scripts.lab.benchmarking.equality import check_equal, evidence, gradients
from qkv.scripts.lab.benchmarking.timm_vit import row_of
from tiny_workloads import RUN, WORKLOADS, stock, tiny

# Contenders with models of their own, on each kind of workload that they have; timm is in no environment of the tests.
OTHERS = [
    (name, workload)
    for name in ("x-transformers", "torch-encoder", "plain-decoder", *(f"qkv-{path}" for path in PATHS))
    for workload in RUN
    if CONTENDERS[name].has(WORKLOADS[workload])
]


@pytest.mark.parametrize(("name", "workload"), OTHERS)
def test_a_contender_computes_the_same_from_any_weights(name: str, workload: str) -> None:
    """With weights of its own for norms; the library without biases is given none."""
    small = tiny(workload)
    official = stock(small)
    with torch.no_grad():
        for key, weight in official.named_parameters():
            if weight.dim() == 1 and (key.endswith("weight") or name != "x-transformers"):
                weight.add_(0.3 * torch.randn_like(weight))
    inputs = batch(small, official.config, 0)
    wanted = evidence(official, small, inputs, torch.float32), gradients(official)
    taken = candidate(name, official, small)
    actual = evidence(taken.model, small, inputs, torch.float32)
    differences = check_equal(name, taken, wanted, actual, torch.float32)
    assert max(differences.values(), default=0.0) < 1e-5 and ("gradients" in differences) == (small.step == "train")


def test_paths_that_were_not_measured_take_part_where_they_are_asked_for() -> None:
    asked = {f"qkv-{path}{ending}" for path in PATHS for ending in ("", "-compiled")}
    assert not asked & {*chosen_contenders([])} and {*chosen_contenders(["qkv*"])} == asked | {
        "qkv",
        "qkv-compiled",
        THEIRS,
    }


def official_name(name: str) -> str:
    """The stock tensor that a weight of timm's ViT comes from."""
    asked: list[str] = []

    class Asked(dict):
        def __missing__(self, key: str) -> torch.Tensor:
            asked.append(key)
            return torch.ones(1)

    row_of(name).weight(Asked())
    return asked[0]


def test_every_weight_of_a_vit_goes_to_one_of_timm() -> None:
    """The names are those of timm 1.0."""
    parts = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    modules = ["patch_embed.proj", "norm", "head", *(f"blocks.{layer}.{part}" for layer in (0, 1) for part in parts)]
    names = ["cls_token", "pos_embed", *(f"{module}.{kind}" for module in modules for kind in ("weight", "bias"))]
    state = stock(tiny("vit-train-small")).state_dict()
    sources = {official_name(f"net.{name}") for name in names}
    split = {key for key in state if ".k_proj." in key or ".v_proj." in key}
    assert len(sources) == len(names) and sources == state.keys() - split


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encode-small-128", "decode-small-1"])
def test_a_compiled_model_has_the_same_results(name: str) -> None:
    from qkv.scripts.lab.benchmarking import run
    from tiny_workloads import settings

    record = run.measure(tiny(name), settings("transformers", "transformers-compiled", rounds=1), lambda *_: None)
    assert [*record["contenders"]] == ["transformers", "transformers-compiled"], record["absent"]
