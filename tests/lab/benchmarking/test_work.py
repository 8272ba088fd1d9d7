"""The least work of a step: what is read, once, of real tokens."""

import pytest
import torch

from qkv.scripts.lab.benchmarking.batches import batch
from qkv.scripts.lab.benchmarking.contenders import stock_model
from qkv.scripts.lab.benchmarking.work import least_seconds, work
from qkv.scripts.lab.benchmarking.workloads import Workload
from tiny_workloads import RUN, tiny


def of(workload: Workload) -> dict[str, float]:
    stock = stock_model(workload, 0, torch.device("cpu"), torch.float32)
    return work(stock, workload, batch(workload, stock.config, 0))


@pytest.mark.parametrize("name", RUN)
def test_every_kind_of_workload_has_work(name: str) -> None:
    counted = of(tiny(name))
    assert counted["tokens"] > 0 and counted["flops"] > 0
    assert (counted["bytes"] > 0) == (tiny(name).step == "generate")


def changed(name: str, **fields: object) -> Workload:
    return Workload(**{**vars(tiny(name)), **fields})


def test_weights_are_read_once_for_all_rows_of_a_batch() -> None:
    one, eight = (of(changed("decode-small-1", batch=rows, length=1)) for rows in (1, 8))
    assert one["bytes"] < eight["bytes"] < 2 * one["bytes"] and eight["tokens"] == 8 * one["tokens"]


def test_padding_is_no_work() -> None:
    whole, padded = (changed("encode-small-128", batch=8, length=32, real=real) for real in (1.0, 0.5))
    assert of(padded)["flops"] < 0.55 * of(whole)["flops"]
    assert of(whole)["tokens"] == 8 * 32


def test_an_encoder_layer_is_counted_by_hand() -> None:
    workload = changed("encode-small-128", batch=1, length=10, real=1.0)
    layer = 4 * 16 * 16 + 2 * 16 * 32
    assert of(workload)["flops"] == 2 * (2 * 10 * layer + 4 * 10 * 10 * 16)


def test_a_window_to_both_sides_is_counted_by_hand() -> None:
    layer, near = 4 * 16 * 16 + 2 * 16 * 32, 5  # two tokens on either side, and the token itself
    counted = of(changed("longformer-4096", batch=1, length=10, real=1.0))
    assert counted["flops"] == 2 * (2 * 10 * (layer + 3 * 16 * 16) + 4 * 10 * near * 16)


def test_training_is_three_times_forward_with_the_logits_that_are_read() -> None:
    counted = of(changed("clm-train-small-256", batch=2, length=10))
    layer = 4 * 16 * 16 + 2 * 16 * 64
    forward = 2 * 2 * (2 * 10 * layer + 2 * 10 * 10 * 16) + 2 * 2 * 9 * 40 * 16
    assert counted["flops"] == 3 * forward


def test_the_limit_adds_both_rates() -> None:
    machine = {"gemm_flops": 10.0, "bandwidth_bytes": 5.0}
    assert least_seconds({"flops": 20.0, "bytes": 15.0}, machine) == 5.0
