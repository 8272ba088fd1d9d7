"""Seeded batches of realistic lengths: what a model reads, and which of its outputs are of real tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.lab.benchmarking.workloads import Workload

Inputs = dict[str, Tensor]
# Ids below are special ones, padding among them; of real tokens, this share is to be predicted.
SPECIAL, MASKED = 10, 0.15
# The tokens of a question.
QUESTION = 16
# Spread of the logarithm of lengths, as in collections of sentences and of paragraphs.
SPREAD = 0.6


def lengths(rows: int, longest: int, real: float, generator: torch.Generator) -> Tensor:
    """Draw lengths with a long tail, of which one fills the batch, and whose mean is a share of the longest."""
    drawn = torch.exp(SPREAD * torch.randn(rows, generator=generator))
    low, high = 0.0, 1e3 * longest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if clipped(drawn * middle, longest).float().mean() < real * longest else (low, middle)
        )
    return clipped(drawn * high, longest)


def clipped(drawn: Tensor, longest: int) -> Tensor:
    """Round lengths to what fits, the greatest to the whole length."""
    rounded = drawn.round().clamp(2, longest).long()
    rounded[drawn.argmax()] = longest
    return rounded


def tokens(shape: tuple[int, ...], config: Any, generator: torch.Generator) -> Tensor:
    """Draw ids that are no special ones."""
    return torch.randint(SPECIAL, config.vocab_size, shape, generator=generator)


def padded(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return right-padded texts and their mask."""
    real = lengths(workload.batch, workload.length, workload.real, generator)
    mask = torch.arange(workload.length) < real[:, None]
    ids = tokens((workload.batch, workload.length), config, generator)
    return {"input_ids": ids.masked_fill(~mask, config.pad_token_id), "attention_mask": mask.long()}


def masked(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return padded texts of which some tokens are masked, and these as labels."""
    inputs = padded(workload, config, generator)
    drawn = torch.rand(inputs["input_ids"].shape, generator=generator) < MASKED
    hidden = drawn & inputs["attention_mask"].bool()
    labels = inputs["input_ids"].masked_fill(~hidden, IGNORED)
    return inputs | {"input_ids": inputs["input_ids"].masked_fill(hidden, SPECIAL - 1), "labels": labels}


def text(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return texts of one length, as packing makes them, or prompts; trained on, they are their own labels."""
    ids = tokens((workload.batch, workload.length), config, generator)
    if workload.step == "train":
        return {"input_ids": ids, "labels": ids}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def question(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return padded texts whose first tokens, as those of a question, attend to all; to train on, some are masked."""
    inputs = (masked if workload.step == "train" else padded)(workload, config, generator)
    return inputs | {
        "global_attention_mask": (torch.arange(workload.length) < QUESTION).long().expand(workload.batch, -1)
    }


def pairs(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return padded sources, and to train on padded targets, drawn by lengths of their own."""
    inputs = padded(workload, config, generator)
    if workload.step != "train":
        return inputs
    real = lengths(workload.batch, workload.target_length, workload.target_real, generator)
    targets = tokens((workload.batch, workload.target_length), config, generator)
    return inputs | {"labels": targets.masked_fill(torch.arange(workload.target_length) >= real[:, None], IGNORED)}


def images(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return images, and to train on their classes."""
    shape = (workload.batch, config.num_channels, config.image_size, config.image_size)
    inputs = {"pixel_values": torch.randn(shape, generator=generator)}
    if workload.step == "train":
        inputs["labels"] = torch.randint(0, config.num_labels, (workload.batch,), generator=generator)
    return inputs


def sound(workload: Workload, config: Any, generator: torch.Generator) -> Inputs:
    """Return spectrograms of half a minute."""
    shape = (workload.batch, config.num_mel_bins, 2 * config.max_source_positions)
    return {"input_features": torch.randn(shape, generator=generator)}


READS: dict[str, Callable[[Workload, Any, torch.Generator], Inputs]] = {
    "padded": padded,
    "masked": masked,
    "text": text,
    "question": question,
    "pairs": pairs,
    "images": images,
    "sound": sound,
}


def batch(workload: Workload, config: Any, seed: int) -> Inputs:
    """Return the batch of a workload for a model of that config."""
    return READS[workload.model.reads](workload, config, torch.Generator().manual_seed(seed))


def without_labels(inputs: Inputs, config: Any = None) -> Inputs:
    """Return inputs without labels; a decoder beside an encoder reads those before each place, or a first token."""
    given = {name: value for name, value in inputs.items() if name != "labels"}
    if not getattr(config, "is_encoder_decoder", False):
        return given
    rows = next(iter(given.values()))
    start = torch.full((len(rows), 1), config.decoder_start_token_id, device=rows.device)
    if "labels" not in inputs:
        return given | {"decoder_input_ids": start}
    before = inputs["labels"][:, :-1].masked_fill(inputs["labels"][:, :-1] == IGNORED, config.pad_token_id)
    return given | {"decoder_input_ids": torch.cat([start, before], 1)}


def real_tokens(workload: Workload, inputs: Inputs) -> Tensor | None:
    """Return which outputs are of real tokens; None where all are."""
    if workload.model.reads == "pairs":
        return inputs["labels"] != IGNORED if "labels" in inputs else None
    mask = inputs.get("attention_mask")
    return None if mask is None else mask.bool()
