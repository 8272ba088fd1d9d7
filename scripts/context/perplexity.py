"""Perplexity of a language model by the length of what it reads."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from qkv.configuration.axes import TABLE_POSITIONS

SEED, MASKED = 0, 0.15


@torch.no_grad()
def perplexity_by_length(
    model: PreTrainedModel, tokens: Tensor, lengths: Iterable[int], mask_token_id: int | None = None
) -> dict[int, float]:
    """Return the perplexity of a text that is read in rows of each length, without lengths that do not fit.

    All lengths are measured on the same tokens, those that fill rows of the greatest. A decoder predicts every token
    but the first of a row; a model that fills masks predicts 15 % of them, the same at every length.

    Shapes: tokens (N,)
    """
    check_language_model(model, mask_token_id)
    tokens = tokens.flatten().to(model.device)
    fitting = sorted(length for length in set(lengths) if 1 < length <= min(len(tokens), longest(model)))
    tokens = tokens[: len(tokens) // fitting[-1] * fitting[-1]] if fitting else tokens
    was_training = model.training
    model.eval()
    try:
        return {length: perplexity(model, tokens, length, mask_token_id) for length in fitting}
    finally:
        model.train(was_training)


def check_language_model(model: PreTrainedModel, mask_token_id: int | None) -> None:
    """Raise where a model predicts no tokens of its own input, or nobody says what masks are."""
    name = type(model).__name__
    if not name.endswith(("ForCausalLM", "ForMaskedLM")):
        raise ValueError(f"{name} has no perplexity of a text; give a model ForCausalLM or ForMaskedLM, or no tokens")
    if name.endswith("ForMaskedLM") and mask_token_id is None:
        raise ValueError(f"{name} fills masks; give mask_token_id, which its tokenizer knows")


def longest(model: PreTrainedModel) -> int:
    """Return the longest row that a model reads: of its table of positions, or any."""
    config: Any = model.config
    return int(config.max_position_embeddings) if config.position in TABLE_POSITIONS else 2**62


def perplexity(model: Any, tokens: Tensor, length: int, mask_token_id: int | None) -> float:
    """Return the perplexity of a text in whole rows of a length."""
    chosen = torch.rand(len(tokens), generator=torch.Generator().manual_seed(SEED)).to(tokens.device) < MASKED
    total, count = 0.0, 0
    for start in range(0, len(tokens) - length + 1, length):
        row = tokens[start : start + length]
        if mask_token_id is None:
            logits, targets = model(row[None]).logits[0, :-1], row[1:]
        else:
            masked = chosen[start : start + length]
            logits, targets = model(row.masked_fill(masked, mask_token_id)[None]).logits[0, masked], row[masked]
        total += float(F.cross_entropy(logits.float(), targets, reduction="sum"))
        count += len(targets)
    return math.exp(total / count)
