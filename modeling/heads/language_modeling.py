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
from ..kernel import computed_dtype, soft_cap
from .chunked_loss import ChunkedCrossEntropy
from .loss import IGNORED, Count, cross_entropy, negative_log_likelihood, normalise

# Rows of logits that exist at once, second on an accelerator, and the size from which they are not made whole: memory
# that the allocator returns.
CHUNK, WIDE_CHUNK = 256, 4096
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
    head: nn.Module, hidden: Tensor, labels: Tensor | None, *, skip_logits: bool, softcap: Any = None, **options: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Return (loss or None, logits or None) of hidden states (B, T, D), with options of `negative_log_likelihood`.

    Logits approach the bound `softcap`, where there is one.
    """
    if skip_logits and labels is not None:
        return loss_without_logits(head, hidden, labels, softcap=softcap, **options), None
    logits = soft_cap(way_of(head)(hidden), softcap)
    return cross_entropy(logits, labels, **options), logits


def loss_without_logits(
    head: nn.Module,
    hidden: Tensor,
    labels: Tensor,
    num_items_in_batch: Count = None,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
) -> Tensor:
    """Compute `negative_log_likelihood` of the tokens with a label, a chunk of logits at a time if they are many."""
    if torch.compiler.is_compiling() and is_on_host(hidden):
        return negative_log_likelihood(soft_cap(head(hidden), softcap), labels, num_items_in_batch, label_smoothing)
    decoder = cast(nn.Linear, getattr(head, "decoder", head))  # a masked language model transforms the states first
    check_labels((*hidden.shape[:-1], decoder.out_features), labels, IGNORED)
    hidden, labels = hidden.flatten(0, -2), labels.to(hidden.device).flatten()
    # The labels of a masked language model are few, of others nearly all: to count them an accelerator has to wait.
    few = decoder is not head or is_on_host(hidden)
    if few and type(labels) is Tensor and labels.device.type != "meta" and not torch.compiler.is_compiling():
        due = (labels != IGNORED).nonzero()[:, 0]
        hidden, labels = hidden.index_select(0, due), labels[due]
    if labels.numel() * decoder.out_features < LARGE or not is_weight_alone(head, decoder, hidden):
        return negative_log_likelihood(soft_cap(head(hidden), softcap), labels, num_items_in_batch, label_smoothing)
    features = hidden if decoder is head else cast("Callable[[Tensor], Tensor]", head.features)(hidden)
    total = summed_loss(features, decoder, labels.long(), label_smoothing, softcap)
    return normalise(total, (labels != IGNORED).sum().clamp(min=1), num_items_in_batch)


def is_on_host(hidden: Tensor) -> bool:
    """Return True where tensors are computed by the processor that decides what to compute."""
    return hidden.device.type == "cpu"


def summed_loss(
    features: Tensor, decoder: nn.Linear, labels: Tensor, label_smoothing: float, softcap: float | None = None
) -> Tensor:
    """Sum the losses of tokens, a chunk of logits at a time: (N, D), labels (N,) -> ()."""
    weight, bias = decoder.weight, decoder.bias
    plain = not label_smoothing and softcap is None
    if is_on_host(features) and plain and hasattr(F, "linear_cross_entropy"):
        how: dict[str, Any] = {"options": nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK, chunking_method=None)}
        how |= {"linear_bias": bias, "ignore_index": IGNORED, "reduction": "sum"}
        return F.linear_cross_entropy(features, weight, labels, **how)
    dtype = computed_dtype(features)
    given = [None if each is None else each.to(dtype) for each in (features, weight, bias)]
    rows = CHUNK if is_on_host(features) else WIDE_CHUNK
    return cast(Tensor, ChunkedCrossEntropy.apply(*given, labels, (rows, label_smoothing, softcap)))


def is_weight_alone(head: nn.Module, decoder: nn.Linear, hidden: Tensor) -> bool:
    """Return True for a plain linear map: sharded, quantised, adapted or hooked maps are called as modules."""
    weight = decoder.weight
    hooks = [module._forward_pre_hooks or module._forward_hooks for module in (head, decoder)]
    precise = computed_dtype(hidden) in (torch.float32, torch.float64) and weight.dtype == hidden.dtype
    return (
        getattr(type(decoder), "forward", None) is nn.Linear.forward
        and type(weight) is nn.Parameter
        and weight.shape == (decoder.out_features, decoder.in_features)
        # Processors compute half precision slowly, a chunk at a time even more so.
        and (precise if is_on_host(hidden) else weight.dtype == hidden.dtype or computed_dtype(hidden) != hidden.dtype)
        and not any(hooks)
        and not any("forward" in vars(module) for module in (head, decoder))
    )
