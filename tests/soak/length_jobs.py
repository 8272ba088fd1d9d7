"""One step of training on a text of tens of thousands of tokens, and the memory of the process that takes it."""

import json
from pathlib import Path
from typing import Any

import torch
from watching import deadline

import checkout  # noqa: F401  makes qkv importable
import qkv

FAMILIES = {
    "encoder": (qkv.QkvEncoderConfig, qkv.QkvEncoderForMaskedLM),
    "decoder": (qkv.QkvDecoderConfig, qkv.QkvDecoderForCausalLM),
}
# What is computed of a text, by its name.
SPARSE: dict[str, dict[str, Any]] = {
    "a window of 128": {"pattern": "sliding", "sliding_window": 128},
    "blocks of 64, the first global": {"pattern": "block_sparse", "block_size": 64},
    "linear attention": {"kernel": "linear"},
}


def peak_memory() -> float:
    """Gigabytes that this process held at most, files that are mapped among them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def one_step(family: str, sparse: str, tokens: int) -> dict[str, Any]:
    """Predict the tokens of one text, and go back."""
    kind, head = FAMILIES[family]
    sizes = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = kind(**sizes, intermediate_size=256, position="rope", max_position_embeddings=tokens, **SPARSE[sparse])
    model, text, before = head(config), torch.randint(256, (1, tokens)), peak_memory()
    with deadline(600):
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
    finite = all(bool(weight.grad.isfinite().all()) for weight in model.parameters() if weight.grad is not None)
    return {"loss": loss.item(), "finite": finite, "before GB": before, "peak GB": peak_memory()}


def main(words: str, answer: str) -> None:
    Path(answer).write_text(json.dumps(one_step(**json.loads(words))))
