"""Padded rows, labels, saved copies and generated tokens of a model under check."""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from qkv.scripts.conformance.outcomes import skip_if
from qkv.scripts.conformance.subject import Inputs, Subject

POOLED = ("SequenceClassification", "ImageClassification")
TOKENS = ("MaskedLM", "TokenClassification")


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
    others = inputs.keys() - {"input_ids", "attention_mask", "decoder_input_ids"}
    skip_if(others or inputs["input_ids"].dim() != 2, "inputs are more than one text")
    if subject.kind == "encoder" and not subject.per_token:  # pooled, or of pairs of tokens
        shapes = [subject.logits(subject.model, subject.batch(1, size)).shape for size in (short, length)]
        skip_if(shapes[0] != shapes[1], "outputs are neither of tokens nor pooled")
    mask[0, slice(short, None) if side == "right" else slice(0, length - short)] = 0
    pad = getattr(subject.text, "pad_token_id", None) or 0
    inputs["input_ids"] = inputs["input_ids"].masked_fill(mask == 0, pad)
    alone = {name: value[:1] for name, value in inputs.items()}
    alone["input_ids"] = alone["input_ids"][:, mask[0].bool()]
    positions = {}
    if "position_ids" in subject.names and subject.kind == "decoder":
        positions["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return Padded({**inputs, "attention_mask": mask}, mask, positions, alone)


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


def is_named(model_class: type, endings: tuple[str, ...]) -> bool:
    """Return whether the name of a class, or of one that it extends, ends so."""
    return any(each.__name__.endswith(endings) for each in model_class.__mro__)


def labelled(subject: Subject, *, part: bool = False) -> Labelled:
    """Return a batch with labels; where only `part` of tokens has one, rows have different numbers of them."""
    pooled, per_token, classifies = (is_named(subject.cls, ends) for ends in (POOLED, TOKENS, ("Classification",)))
    known = pooled or per_token or subject.kind in ("decoder", "seq2seq")
    skip_if("labels" not in subject.names or not known, "no labels, or a loss of another kind")
    classes: int = subject.config.num_labels if classifies else subject.text.vocab_size - 3
    labels = torch.arange(2) % classes if pooled else subject.ids(2, 12, 70) % classes
    if part and not pooled:
        labels[0, 3:], labels[1, 1] = -100, -100
    return Labelled(source_of(subject.batch()), labels, shifted=subject.kind == "decoder")


def generate(subject: Subject, inputs: Inputs, model: Any = None, **options: Any) -> Any:
    """Return the tokens that a seeded search writes, without the prompt."""
    skip_if(not subject.cls.can_generate(), "does not generate")
    torch.manual_seed(subject.seed)
    new = options.pop("new", 8)
    defaults = {"do_sample": False, "disable_compile": True, "pad_token_id": 0}
    lengths = {"max_new_tokens": new, "min_new_tokens": new}
    out = (model or subject.model).generate(**inputs, **lengths, **{**defaults, **options})
    return out[:, -new:] if torch.is_tensor(out) else out


@contextmanager
def saved(model: Any, shard_size: str = "5GB") -> Iterator[Path]:
    """Save a model in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size=shard_size)
        yield Path(folder)


def reloaded(subject: Subject, model: Any) -> Any:
    """Return a model as its file gives it back."""
    with saved(model) as folder:
        return subject.cls.from_pretrained(folder, dtype=torch.float32).eval()


@contextmanager
def said() -> Iterator[list[str]]:
    """Collect warnings and logged lines, also those that were given once before."""
    lines: list[str] = []
    root, once = logging.getLogger("transformers"), getattr(logging.Logger, "warning_once", None)
    handler, level = logging.Handler(), root.level
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    if once is not None:
        once.cache_clear()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield lines
        lines.extend(str(each.message) for each in seen)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
