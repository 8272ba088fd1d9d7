"""Workloads: names, patterns and beginnings choose them."""

import pytest
import transformers

import qkv
from qkv.scripts.lab.benchmarking.batches import READS
from qkv.scripts.lab.benchmarking.workloads import STEPS, chosen
from tiny_workloads import WORKLOADS

KNOWN = ["mlm-train-small", "mlm-train-base", "decode-small-1", "decode-base-1", "load", "load-again"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], KNOWN),
        (["load-again"], ["load-again"]),
        (["load"], ["load"]),
        (["load*"], ["load", "load-again"]),
        (["mlm"], KNOWN[:2]),
        (["*-base*"], ["mlm-train-base", "decode-base-1"]),
        (["decode-base-1", "mlm-train-small"], ["mlm-train-small", "decode-base-1"]),
    ],
)
def test_words_choose_workloads_in_the_order_of_the_table(words: list[str], names: list[str]) -> None:
    assert chosen(words, KNOWN) == names


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_names_what_there_is(name: str) -> None:
    workload = WORKLOADS[name]
    official = getattr(qkv if workload.model.official.startswith("Qkv") else transformers, workload.model.official)
    assert workload.step in STEPS and workload.model.reads in READS and 0 < workload.real <= 1
    assert official.config_class(**workload.model.config)
    assert (workload.new_tokens > 0) == (workload.step == "generate")
