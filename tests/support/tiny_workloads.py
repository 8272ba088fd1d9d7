"""The workloads of `qkv benchmark` at a size that takes no time, and what a measurement of them looks like."""

from dataclasses import replace
from typing import Any

import torch

from qkv.scripts.benchmarking.run import Settings
from qkv.scripts.benchmarking.workloads import Workload, read_workloads

BERT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
LLAMA = BERT | {"num_key_value_heads": 1}
SIZES: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": BERT,
    "BertModel": BERT,
    "GPT2LMHeadModel": GPT2,
    "LlamaForCausalLM": LLAMA,
}
WORKLOADS = read_workloads()
# One for each class and step.
KINDS = {(workload.model.official, workload.step): name for name, workload in reversed(WORKLOADS.items())}
MACHINE = {
    "device": "cpu", "name": "a processor", "cores": 2, "threads": 2, "dtype": "float32",
    "gemm_flops": 1e11, "bandwidth_bytes": 2e10,
}  # fmt: skip
LENGTHS = {"batch": 3, "length": 12, "target_length": 8, "new_tokens": 4}


def tiny(name: str) -> Workload:
    """A workload with a small model and a small batch."""
    workload = WORKLOADS[name]
    shape = replace(workload.model, config=workload.model.config | SIZES[workload.model.official])
    small = {key: min(value, getattr(workload, key)) for key, value in LENGTHS.items()}
    return replace(workload, model=shape, **small)


def settings(*contenders: str, rounds: int = 2) -> Settings:
    """The conditions of a measurement on a CPU."""
    return Settings(contenders, rounds, 0, torch.device("cpu"), torch.float32)


def measured(seconds: dict[str, list[float]], **others: Any) -> dict[str, Any]:
    """A workload's record with these laps."""
    from qkv.scripts.benchmarking.timing import ratios

    contenders = {
        name: {
            "seconds": own,
            "times_as_fast": ratios(seconds["transformers"], own),
            "peak_bytes": 1000 * len(name),
            "differences": {"loss": 1e-7},
        }
        for name, own in seconds.items()
    }
    workload = WORKLOADS["mlm-train-small-128"]
    return {
        **workload.sizes, "work": {"flops": 1e10, "bytes": 0, "tokens": 100.0}, "least_seconds": 0.1, "absent": {},
        "contenders": contenders, "rounds": 2, "commit": "0123456789abcdef", **others,
    }  # fmt: skip


def record(**workloads: dict[str, Any]) -> dict[str, Any]:
    """A whole record."""
    versions = {"torch": "2.13.0", "transformers": "5.23.0"}
    return {
        "command": "qkv benchmark", "seed": 0, "commit": "0123456789abcdef", "versions": versions, "machine": MACHINE,
        "workloads": workloads,
    }  # fmt: skip
