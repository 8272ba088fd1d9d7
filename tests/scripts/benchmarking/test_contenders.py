"""Contenders: words choose them, and each takes over the weights."""

import pytest
import torch

from qkv.scripts.benchmarking.contenders import CONTENDERS, candidate, chosen_contenders, stock_model
from tiny_workloads import tiny


def test_transformers_is_always_among_the_contenders() -> None:
    assert chosen_contenders([]) == [*CONTENDERS]
    assert chosen_contenders(["qkv"]) == ["qkv", "transformers"]


def test_a_wrong_word_is_answered_with_what_is_close() -> None:
    with pytest.raises(ValueError, match="there is no contender 'transformer'; did you mean 'transformers'"):
        chosen_contenders(["transformer"])


@pytest.mark.parametrize("name", ["qkv", "transformers"])
def test_a_contender_has_weights_of_its_own(name: str) -> None:
    workload = tiny("clm-train-small-256")
    stock = stock_model(workload, 0, torch.device("cpu"), torch.float32)
    taken = candidate(name, stock, workload)
    mine = {weight.data_ptr() for weight in taken.model.parameters()}
    assert not mine & {weight.data_ptr() for weight in stock.parameters()}
    assert sum(weight.numel() for weight in taken.model.parameters()) == sum(
        weight.numel() for weight in stock.parameters()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encode-small-128", "decode-small-1"])
def test_a_compiled_model_has_the_same_results(name: str) -> None:
    from qkv.scripts.benchmarking import run
    from tiny_workloads import MACHINE, settings

    record = run.measure(
        tiny(name), settings("transformers", "transformers-compiled", rounds=1), MACHINE, lambda *_: None
    )
    assert [*record["contenders"]] == ["transformers", "transformers-compiled"], record["absent"]
