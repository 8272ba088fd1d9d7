"""Losses: sums over targets divided by a count, or None without labels.

With `num_items_in_batch` (targets of the whole optimizer step, over accumulation and processes) the parts add up to the
loss of one big batch; without it a loss is the mean over its targets.

Shapes: B batch, T tokens, V classes or vocabulary, C channels.
"""

import torch
from torch import Tensor, distributed
from torch.distributed.nn import functional as collective
from torch.nn import functional as F

from ...configuration.configuration_audio_encoder import QkvAudioEncoderConfig
from ...configuration.configuration_base import QkvConfig
from ..checks.inputs import check_labels, check_pairs, check_range, check_shape
from ..checks.sound import check_ctc_labels, check_ctc_lengths

IGNORED = -100
# Targets of a whole optimizer step, where that is more than this batch.
Count = Tensor | int | None


def normalise(total: Tensor, count: Tensor | int, num_items_in_batch: Count) -> Tensor:
    """Divide a summed loss by the number of targets of the step, or of this batch."""
    items = count if num_items_in_batch is None else num_items_in_batch
    return total / (items.to(total.device) if isinstance(items, Tensor) else items)


def negative_log_likelihood(
    logits: Tensor, labels: Tensor, num_items_in_batch: Count = None, label_smoothing: float = 0.0
) -> Tensor:
    """Compute the negative log-likelihood of labels (...,) under logits (..., V), in single precision at least.

    Source: smoothing: Szegedy et al. 2016, §7, https://arxiv.org/abs/1512.00567
    """
    check_labels(logits.shape, labels, IGNORED)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    labels = labels.to(logits.device).flatten()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED, label_smoothing=label_smoothing, reduction="sum")
    # Without a single target the loss is 0 and teaches nothing; 0 / 0 would poison every weight.
    return normalise(total, (labels != IGNORED).sum().clamp(min=1), num_items_in_batch)


def cross_entropy(
    logits: Tensor, labels: Tensor | None, num_items_in_batch: Count = None, label_smoothing: float = 0.0
) -> Tensor | None:
    """Compute `negative_log_likelihood`, or return None without labels."""
    if labels is None:
        return None
    return negative_log_likelihood(logits, labels, num_items_in_batch, label_smoothing)


def next_tokens(
    labels: Tensor | None,
    shift_labels: Tensor | None = None,
    position_ids: Tensor | None = None,
    boundaries: Tensor | None = None,
) -> Tensor | None:
    """Return the token that each position predicts (B, T), from labels (B, T) that are shifted here.

    Where `position_ids` restart, or at `boundaries` (documents + 1,), the first token of a document is no target.
    """
    if shift_labels is not None or labels is None:
        return shift_labels
    if labels.ndim != 2:  # refused where the shape of the scores is known
        return labels
    if position_ids is not None:
        restarts = F.pad(position_ids[:, 1:] <= position_ids[:, :-1], (1, 0), value=False)
        labels = labels.masked_fill(restarts.to(labels.device), IGNORED)
    if boundaries is not None:
        index = torch.arange(labels.shape[1], device=labels.device)
        labels = labels.masked_fill(torch.isin(index, boundaries.to(index)), IGNORED)
    # trf-ignore: TRF053  labels of packed documents were masked above
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED)


def classification(
    logits: Tensor, labels: Tensor | None, config: QkvConfig, num_items_in_batch: Count = None
) -> Tensor | None:
    """Compute the class, regression or multi-label loss of logits (B, V), chosen by `problem_type` or by the labels."""
    if labels is None:
        return None
    kind = config.problem_type or problem_type(labels, logits.shape[-1])
    labels = labels.to(logits.device)
    if kind == "single_label_classification":
        return cross_entropy(logits, labels, num_items_in_batch, getattr(config, "label_smoothing", 0.0))
    if labels.numel() != logits.numel():
        shapes = f"labels of shape {tuple(labels.shape)} do not fit scores of shape {tuple(logits.shape)}"
        raise ValueError(f"{shapes} for problem_type={kind!r}; give one number for each score")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    labels = labels.reshape(logits.shape).to(logits.dtype)
    loss = F.mse_loss if kind == "regression" else F.binary_cross_entropy_with_logits
    return normalise(loss(logits, labels, reduction="sum"), labels.numel(), num_items_in_batch)


def replaced_tokens(
    logits: Tensor, labels: Tensor | None, attention_mask: Tensor | None, num_items_in_batch: Count = None
) -> Tensor | None:
    """Compute the binary cross-entropy of replaced tokens, labelled 1: logits, labels and mask (B, T).

    Source: Clark et al. 2020, ELECTRA, §2, https://arxiv.org/abs/2003.10555
    """
    real = attention_mask if attention_mask is not None and attention_mask.ndim == 2 else None
    return binary_cross_entropy(logits, labels, real, num_items_in_batch, "mark original 0, replaced 1")


def binary_cross_entropy(
    logits: Tensor, labels: Tensor | None, real: Tensor | None, num_items_in_batch: Count, mend: str
) -> Tensor | None:
    """Compute the binary cross-entropy of labels 0 and 1, -100 where none is due, at `real` places: all (...,)."""
    if labels is None:
        return None
    check_shape("labels", labels, logits.shape, "scores")
    due = labels != IGNORED
    if real is not None:
        due = due & real.to(labels.device, torch.bool)
    check_range("labels", labels.masked_fill(~due, 0), 2, "classes", f"{mend}, others {IGNORED}")
    due = due.to(logits.device)
    precise = torch.promote_types(logits.dtype, torch.float32)
    targets = labels.to(logits.device, precise)
    losses = F.binary_cross_entropy_with_logits(logits.to(precise), targets, reduction="none")
    return normalise(losses.masked_fill(~due, 0).sum(), due.sum().clamp(min=1), num_items_in_batch)


def problem_type(labels: Tensor, num_labels: int) -> str:
    """Return transformers' problem type: one output: regression, whole labels: classes, others: multi-label."""
    if num_labels == 1:
        return "regression"
    return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


def question_answering_loss(
    starts: Tensor,
    ends: Tensor,
    start_positions: Tensor | None,
    end_positions: Tensor | None,
    num_items_in_batch: Count = None,
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """Compute the mean loss of an answer's first and last token: logits 2 x (B, T), positions 2 x (B,).

    Positions outside the sequence are ignored. Source: Devlin et al. 2019, §4.2, https://arxiv.org/abs/1810.04805
    """
    if start_positions is None or end_positions is None:
        return None
    length = starts.shape[-1]
    positions = torch.cat((start_positions.flatten(), end_positions.flatten()))
    first, last = positions.masked_fill((positions < 0) | (positions >= length), IGNORED).chunk(2)
    loss = negative_log_likelihood(starts, first, num_items_in_batch, label_smoothing)
    return (loss + negative_log_likelihood(ends, last, num_items_in_batch, label_smoothing)) / 2


def ctc_loss(
    logits: Tensor,
    labels: Tensor | None,
    lengths: Tensor,
    config: QkvAudioEncoderConfig,
    num_items_in_batch: Count = None,
) -> Tensor | None:
    """Compute the CTC loss of labels (B, words) over all alignments with logits (B, T, V) of lengths (B,).

    Source: Graves et al. 2006, §4.1, Connectionist Temporal Classification
    """
    if labels is None:
        return None
    labels, lengths = labels.to(logits.device), lengths.to(logits.device)
    blank, zero_infinity = config.pad_token_id or 0, config.ctc_zero_infinity
    check_ctc_labels(labels, lengths, logits.shape[-1], blank, IGNORED)
    if not zero_infinity:
        check_ctc_lengths(labels, lengths, IGNORED)
    due = labels != IGNORED
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1).transpose(0, 1)
    total = F.ctc_loss(scores, labels[due], lengths, due.sum(-1), blank, "sum", zero_infinity)
    return normalise(total, due.sum().clamp(min=1), num_items_in_batch)


def masked_image_loss(
    pixels: Tensor, reconstruction: Tensor, masked: Tensor, patch_size: int, num_items_in_batch: Count = None
) -> Tensor:
    """Compute the mean absolute error of masked patches: 2 x (B, C, height, width), masked (B, rows, columns).

    Source: Xie et al. 2022, SimMIM, §3.4, https://arxiv.org/abs/2111.09886
    """
    mask = masked.repeat_interleave(patch_size, 1).repeat_interleave(patch_size, 2)[:, None]
    error = (F.l1_loss(pixels, reconstruction, reduction="none") * mask).sum()
    items = None if num_items_in_batch is None else num_items_in_batch * patch_size**2
    return normalise(error, mask.sum() + 1e-5, items) / pixels.shape[1]


def contrastive(images: Tensor, texts: Tensor, scale: Tensor, num_items_in_batch: Count = None) -> Tensor:
    """Compute the contrastive loss of image and text embeddings: 2 x (B, D) of length 1, row i a pair.

    The pairs of all processes are in-batch negatives, so every process has to take part, and the loss and, under DDP,
    its gradients do not depend on their number. Gradient accumulation adds no negatives.

    Source: Radford et al. 2021, CLIP, §2.3, figure 3, https://arxiv.org/abs/2103.00020
    """
    check_pairs(images, texts)
    all_images, all_texts, first = gather_pairs(images, texts)
    labels = torch.arange(len(images), device=images.device) + first
    losses = [negative_log_likelihood(scale * images @ all_texts.T, labels, 1)]
    losses += [negative_log_likelihood(scale * texts @ all_images.T, labels.to(texts.device), 1).to(images.device)]
    total = (losses[0] + losses[1]) / 2
    if num_items_in_batch is None and together():
        total = collective.all_reduce(total)
    return normalise(total, len(all_images), num_items_in_batch)


def together() -> bool:
    """Return True where several processes share a step."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def gather_pairs(images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor, int]:
    """Gather the pairs of all processes, whose numbers may differ; the last value is the first index of this one."""
    if not together():
        return images, texts, 0
    counts = images.new_zeros(distributed.get_world_size(), dtype=torch.long)
    counts[distributed.get_rank()] = len(images)
    distributed.all_reduce(counts)
    sizes = counts.tolist()
    # One collective for both, of rows as many as the largest has.
    pairs = F.pad(torch.stack((images, texts.to(images.device)), 1), (0, 0, 0, 0, 0, max(sizes) - len(images)))
    gathered = collective.all_gather(pairs)
    everyone = torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])
    all_images, all_texts = everyone.unbind(1)
    return all_images, all_texts.to(texts.device), sum(sizes[: distributed.get_rank()])
