"""Outcomes of a check; padded rows, labels, searches and saved copies of a model, and how they are compared."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest, TestCase
from warnings import catch_warnings

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers.utils.logging import warning_once

from qkv.scripts.conformance.subject import Inputs, Subject

# Of the largest value. Rounding in float32 gave 1e-7 to 1e-5 on a hundred stock classes, faults 1e-3 to 1.
TOLERANCE = 1e-4
# Weights and buffers are copied, not computed.
STORED = 1e-6
# Gradients add up as many terms as a batch has tokens.
GRADIENTS = 1e-3
POOLED = ("SequenceClassification", "ImageClassification")
TOKENS = ("MaskedLM", "TokenClassification")
SEARCHES: dict[str, Any] = {"greedy": {}, "3 beams": {"num_beams": 3}, "sampling": {"do_sample": True, "top_k": 0}}
NEW = 8


class ConformanceError(RuntimeError):
    """A model is wrong without saying so."""


class StepAside(SkipTest):  # noqa: N818  as unittest's own
    """A check ends as `limit` (documented, or promised nowhere) or as `–` (does not apply), with a reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def require(condition: object, reason: str) -> None:
    """Raise ConformanceError unless a condition holds."""
    if not condition:
        raise ConformanceError(reason)


def skip_if(condition: object, reason: str, status: str = "–") -> None:
    """End a check that does not apply if a condition holds."""
    if condition:
        raise StepAside(status, reason)


limit_if = partial(skip_if, status="limit")


def distance(expected: Tensor, actual: Tensor) -> float:
    """Return the largest difference as a share of the largest value; infinity where only one is finite."""
    require(expected.shape == actual.shape, f"shapes {tuple(expected.shape)} and {tuple(actual.shape)}")
    if not expected.numel():
        return 0.0
    expected, actual = expected.detach().float(), actual.detach().float()
    if not torch.equal(expected.isfinite(), actual.isfinite()):
        return float("inf")
    largest = expected.nan_to_num(0, 0, 0).abs().max().clamp(min=1e-6)
    return ((expected - actual).nan_to_num(0, 0, 0).abs().max() / largest).item()


def require_close(expected: Tensor, actual: Tensor, subject: str, tolerance: float = TOLERANCE) -> None:
    """Raise ConformanceError where two tensors differ by more than a share of the largest value."""
    off = distance(expected, actual)
    require(off <= tolerance, f"{subject}: off by {off:.2g} of the largest value (allowed {tolerance:g})")


def differ(expected: Tensor, actual: Tensor) -> bool:
    """Return whether two tensors differ by more than rounding."""
    return distance(expected, actual) > TOLERANCE


@dataclass(frozen=True)
class Padded:
    """Two rows of which the first has padding, its mask, positions where a decoder takes them, and that row alone."""

    inputs: Inputs
    mask: Tensor
    positions: Inputs
    alone: Inputs


def padded(subject: Subject, side: str, short: int = 7, length: int = 12) -> Padded:
    """Return two rows, the first of `short` tokens and padding on one side."""
    inputs, mask = subject.batch(2, length), torch.ones(2, length, dtype=torch.long)
    skip_if("input_ids" not in inputs or "attention_mask" not in subject.names, "no ids with an attention_mask")
    more = inputs.keys() - {"input_ids", "attention_mask", "decoder_input_ids"} if not subject.image_length else ()
    skip_if(more or inputs["input_ids"].dim() != 2, "inputs are more than one text")
    if subject.kind == "encoder" and not subject.per_token:  # pooled, or of pairs of tokens
        shapes = [subject.logits(subject.model, subject.batch(1, size)).shape for size in (short, length)]
        skip_if(shapes[0] != shapes[1], "outputs are neither of tokens nor pooled")
    mask[0, short:] = 0
    ids = inputs["input_ids"].masked_fill(mask == 0, getattr(subject.text, "pad_token_id", None) or 0)
    alone = {name: value[:1] for name, value in inputs.items()} | {"input_ids": ids[:1, :short].clone()}
    if side == "left":
        ids[0], mask[0] = ids[0].roll(length - short), mask[0].roll(length - short)
    takes = "position_ids" in subject.names and subject.kind == "decoder"
    positions = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)} if takes else {}
    return Padded({**inputs, "input_ids": ids, "attention_mask": mask}, mask, positions, alone)


def source_of(inputs: Inputs) -> Inputs:
    """Return inputs without those of a decoder."""
    return {name: value for name, value in inputs.items() if not name.startswith("decoder_")}


@dataclass(frozen=True)
class Labelled:
    """Inputs and labels for training, and whether labels are those of the next token."""

    inputs: Inputs
    labels: Tensor
    shifted: bool

    def expected_loss(self, logits: Tensor, **options: Any) -> Tensor:
        """Return the cross entropy of the labels."""
        labels = self.labels[:, 1:] if self.shifted else self.labels
        logits = logits[:, :-1] if self.shifted else logits
        return cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), **options)


def labelled(subject: Subject) -> Labelled:
    """Return a batch with labels; of tokens, rows have different numbers of them."""
    names = [each.__name__ for each in subject.cls.__mro__]
    pooled, per_token, classifies = (
        any(name.endswith(ends) for name in names) for ends in (POOLED, TOKENS, "Classification")
    )
    known = pooled or per_token or subject.kind in ("decoder", "seq2seq")
    skip_if("labels" not in subject.names or not known, "no labels, or a loss of another kind")
    classes = subject.config.num_labels if classifies else subject.text.vocab_size - 3
    inputs = subject.batch()
    labels = torch.arange(2) % classes if pooled else subject.ids(2, inputs[subject.stream].shape[-1], 70) % classes
    if not pooled:
        labels[0, 3:], labels[1, 1] = -100, -100
        mask = inputs.get(subject.stream.replace("input_ids", "attention_mask"), torch.ones_like(labels))
        labels[mask == 0] = -100  # as collators fill them
    return Labelled(source_of(inputs), labels, shifted=subject.kind == "decoder")


def generate(subject: Subject, inputs: Inputs, model: Any = None, **options: Any) -> Any:
    """Return the tokens that a seeded search writes, without the prompt."""
    skip_if(not subject.cls.can_generate(), "does not generate")
    torch.manual_seed(subject.seed)
    fixed = {"disable_compile": True, "pad_token_id": 0, "max_new_tokens": NEW, "min_new_tokens": NEW}
    out = (model or subject.model).generate(**source_of(inputs), **{"do_sample": False, **fixed, **options})
    return out[:, -NEW:] if torch.is_tensor(out) else out


def compare_searches(subject: Subject, how: str, *pair: tuple[Inputs, dict[str, Any]], names: Any = SEARCHES) -> None:
    """Require the same tokens of two inputs with options by each search, of the rows that both have."""
    for name in names:
        first, second = (generate(subject, inputs, **SEARCHES[name], **options) for inputs, options in pair)
        same = torch.equal(first, second[: len(first)])
        require(same, f"{name}, {how}: tokens {first[0].tolist()} and {second[0].tolist()}")


@contextmanager
def saved(owner: Any, shard_size: str | None = None) -> Iterator[Path]:
    """Save a model or a configuration in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        owner.save_pretrained(folder, **({"max_shard_size": shard_size} if shard_size else {}))
        yield Path(folder)


@contextmanager
def said() -> Iterator[list[str]]:
    """Collect warnings and logged lines, also those that were given once before."""
    lines: list[str] = []
    logger = logging.getLogger("transformers")
    warning_once.cache_clear()
    with TestCase().assertLogs(logger, "WARNING") as logged, catch_warnings(record=True, action="always") as seen:
        logger.warning("a first line, without which assertLogs fails")
        yield lines
    lines += [*logged.output, *(str(each.message) for each in seen)]
