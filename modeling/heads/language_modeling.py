"""Scores of a vocabulary with their loss, or the loss alone, without logits.

Shapes: B batch, T tokens, N tokens with a label, D hidden_size, V vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checks.inputs import check_labels
from ..execution import way_of
from .loss import IGNORED, Count, cross_entropy, negative_log_likelihood, normalise

# Rows of logits that exist at once, and the size from which they are not made whole: memory that the allocator returns.
CHUNK = 256
LARGE = 2**23


def skips_logits(
    model: nn.Module, labels: Tensor | None, asked: Mapping[str, object], *, skip_logits: bool | None
) -> bool:
    """Return True where only the loss is wanted: by `skip_logits` of transformers' Liger kernels, or in training."""
    if labels is None:
        return False
    recorded = any(asked.get(name) for name in ("output_hidden_states", "output_attentions"))
    return model.training and not recorded if skip_logits is None else skip_logits


def score_vocabulary(
    head: nn.Module, hidden: Tensor, labels: Tensor | None, *, skip_logits: bool, **options: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Return (loss or None, logits or None) of hidden states (B, T, D), with options of `negative_log_likelihood`."""
    if skip_logits and labels is not None:
        return loss_without_logits(head, hidden, labels, **options), None
    logits = way_of(head)(hidden)
    return cross_entropy(logits, labels, **options), logits


def loss_without_logits(
    head: nn.Module, hidden: Tensor, labels: Tensor, num_items_in_batch: Count = None, label_smoothing: float = 0.0
) -> Tensor:
    """Compute `negative_log_likelihood` of the tokens with a label, a chunk of logits at a time if they are many."""
    if torch.compiler.is_compiling():
        return negative_log_likelihood(head(hidden), labels, num_items_in_batch, label_smoothing)
    decoder = cast(nn.Linear, getattr(head, "decoder", head))  # a masked language model transforms the states first
    check_labels((*hidden.shape[:-1], decoder.out_features), labels, IGNORED)
    hidden, labels = hidden.flatten(0, -2), labels.to(hidden.device).flatten()
    if type(labels) is Tensor and labels.device.type != "meta":
        due = (labels != IGNORED).nonzero()[:, 0]
        hidden, labels = hidden.index_select(0, due), labels[due]
    if label_smoothing or len(labels) * decoder.out_features < LARGE or not is_weight_alone(head, decoder, hidden):
        return negative_log_likelihood(head(hidden), labels, num_items_in_batch, label_smoothing)
    features = hidden if decoder is head else cast("Callable[[Tensor], Tensor]", head.features)(hidden)
    chunks = nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK, chunking_method=None)
    given = (features, decoder.weight, labels.long())
    total = F.linear_cross_entropy(
        *given, linear_bias=decoder.bias, ignore_index=IGNORED, reduction="sum", options=chunks
    )
    return normalise(total, (labels != IGNORED).sum().clamp(min=1), num_items_in_batch)


def is_weight_alone(head: nn.Module, decoder: nn.Linear, hidden: Tensor) -> bool:
    """Return True for a plain linear map: sharded, quantised, adapted or hooked maps are called as modules."""
    weight = decoder.weight
    hooks = [module._forward_pre_hooks or module._forward_hooks for module in (head, decoder)]
    return (
        hasattr(F, "linear_cross_entropy")
        and getattr(type(decoder), "forward", None) is nn.Linear.forward
        and type(weight) is nn.Parameter
        and weight.shape == (decoder.out_features, decoder.in_features)
        and weight.dtype == hidden.dtype
        and weight.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled(hidden.device.type)
        and not any(hooks)
        and not any("forward" in vars(module) for module in (head, decoder))
    )
