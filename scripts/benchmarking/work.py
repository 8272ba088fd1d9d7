"""Count what a step has to compute and read at least: padding, unread logits and repeated reading are no work."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from qkv.scripts.benchmarking.batches import Inputs
from qkv.scripts.benchmarking.workloads import Workload
from qkv.scripts.data.collate import IGNORED

TRAINED = 3  # a step of training computes two products backward for each one forward


def work(stock: Any, workload: Workload, inputs: Inputs) -> dict[str, float]:
    """Return the least floating-point operations and bytes of a step, and the real tokens it reads or writes."""
    if workload.step == "generate":
        return generated(stock, workload)
    real = real_lengths(inputs)
    flops = body(stock, real) + head(stock, workload, inputs)
    return {"flops": flops * (TRAINED if workload.step == "train" else 1), "bytes": 0, "tokens": float(sum(real))}


def real_lengths(inputs: Inputs) -> list[int]:
    """Return the real length of each text."""
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    return [int(length) for length in mask.sum(1)]


def weights(module: nn.Module) -> int:
    """Return the number of weights that each token is multiplied with."""
    linear = (each for each in module.modules() if isinstance(each, nn.Linear | Conv1D))
    return sum(each.weight.numel() for each in linear)


def body(stock: Any, real: list[int]) -> float:
    """Return the operations of the layers on texts: of their products, and of attention within each text."""
    config = stock.config
    causal = 1 if config.model_type == "bert" else 2
    attended = sum(length**2 for length in real) / causal
    layers = weights(stock.base_model) * sum(real)
    return 2 * layers + 4 * config.hidden_size * config.num_hidden_layers * attended


def head(stock: Any, workload: Workload, inputs: Inputs) -> float:
    """Return the operations of a language-model head on the tokens whose logits are read."""
    if "labels" not in inputs:
        return 0.0
    labels: Tensor = inputs["labels"] if workload.model.reads == "masked" else inputs["labels"][:, 1:]
    read = int((labels != IGNORED).sum())
    # What is no part of the body, the output matrix among it, which the embeddings may share.
    return 2.0 * read * (weights(stock) - weights(stock.base_model))


def generated(stock: Any, workload: Workload) -> dict[str, float]:
    """Return the work of generation: the operations of the prompts, and the bytes of weights and cache by token."""
    config, rows = stock.config, workload.batch
    prompts = [workload.length] * rows
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    cached = 2 * config.num_hidden_layers * heads * (config.hidden_size // config.num_attention_heads)
    length = workload.length + workload.new_tokens / 2
    read = weights(stock) + cached * length * rows
    size = stock.dtype.itemsize
    tokens = float(workload.new_tokens * rows)
    # The prompt gives the first new token; the others take a step each.
    return {"flops": body(stock, prompts), "bytes": size * read * (workload.new_tokens - 1), "tokens": tokens}


def least_seconds(work: dict[str, float], machine: dict[str, Any]) -> float:
    """Return the seconds that a machine takes at its limits."""
    return work["flops"] / machine["gemm_flops"] + work["bytes"] / machine["bandwidth_bytes"]
