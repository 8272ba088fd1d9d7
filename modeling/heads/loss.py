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


def real_places(mask: object, tokens: Tensor) -> Tensor | None:
    """Return which of the last tokens (B, T, ...) a mask (B, S) marks as real (B, T), None for other masks."""
    batch, length = tokens.shape[:2]
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[0] != batch or mask.shape[1] < length:
        return None
    return mask[:, -length:].to(tokens.device, torch.bool)


def due_labels(labels: Tensor | None, real: Tensor | None) -> Tensor | None:
    """Return labels without those where nothing is `real`; those of another shape are refused elsewhere."""
    return labels if labels is None or real is None or labels.shape != real.shape else labels.where(real, IGNORED)


def next_tokens(
    labels: Tensor | None,
    shift_labels: Tensor | None = None,
    position_ids: Tensor | None = None,
    boundaries: Tensor | None = None,
    mask: object = None,
) -> Tensor | None:
    """Return the token that each position predicts (B, T), from labels (B, T) that are shifted here.

    Where `position_ids` restart, or at `boundaries` (documents + 1,), the first token of a document is no target.
    Padding, 0 in a mask (B, S), predicts nothing, and a token before it predicts the next real one.
    """
    if shift_labels is not None or labels is None or labels.ndim != 2:
        return labels if shift_labels is None else due_labels(shift_labels, real_places(mask, shift_labels))
    length, real = labels.shape[1], real_places(mask, labels)
    real = torch.ones(labels.shape, dtype=torch.bool, device=labels.device) if real is None else real
    index = torch.arange(length + 1, device=labels.device)  # to pad with `length` would fix it in a graph
    after = index.where(F.pad(real, (0, 1)), length)[:, 1:].flip(1).cummin(1).values.flip(1)
    targets = F.pad(labels, (0, 1), value=IGNORED).gather(1, after).masked_fill(~real, IGNORED)
    if position_ids is not None:
        positions = position_ids.to(labels.device).expand_as(labels)
        targets = targets.masked_fill(F.pad(positions, (0, 1)).gather(1, after) <= positions, IGNORED)
    if boundaries is not None:
        documents = torch.searchsorted(boundaries[1:].to(index), index, right=True)
        targets = targets.masked_fill(documents[after] != documents[:-1], IGNORED)
    return targets


def classification(
    logits: Tensor, labels: Tensor | None, config: QkvConfig, num_items_in_batch: Count = None
) -> Tensor | None:
    """Compute the class, regression or multi-label loss of logits (B, V), chosen by `problem_type` or by the labels."""
    if labels is None:
        return None
    kind = config.problem_type or problem_type(labels, logits.shape[-1])
    labels = labels.to(logits.device)
    smoothing = getattr(config, "label_smoothing", 0.0)
    if kind == "single_label_classification":
        return cross_entropy(logits, labels, num_items_in_batch, smoothing)
    if labels.numel() != logits.numel():
        shapes = f"labels of shape {tuple(labels.shape)} do not fit scores of shape {tuple(logits.shape)}"
        raise ValueError(f"{shapes} for problem_type={kind!r}; give one number for each score")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    labels = labels.reshape(logits.shape).to(logits.dtype)
    if kind == "regression":
        check_unsmoothed(config)
        return normalise(F.mse_loss(logits, labels, reduction="sum"), labels.numel(), num_items_in_batch)
    total = F.binary_cross_entropy_with_logits(logits, smoothed(labels, smoothing), reduction="sum")
    return normalise(total, labels.numel(), num_items_in_batch)


def check_unsmoothed(config: QkvConfig) -> None:
    """Raise ValueError on label smoothing of a loss that compares numbers."""
    if smoothing := getattr(config, "label_smoothing", 0.0):
        raise ValueError(f"label_smoothing={smoothing} is for classes, and this loss compares numbers; set it to 0")


def smoothed(targets: Tensor, label_smoothing: float) -> Tensor:
    """Move targets of 0 and 1 towards both evenly."""
    return targets * (1 - label_smoothing) + label_smoothing / 2 if label_smoothing else targets


def binary_cross_entropy(
    logits: Tensor,
    labels: Tensor | None,
    real: Tensor | None,
    num_items_in_batch: Count,
    mend: str,
    label_smoothing: float = 0.0,
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
    targets = smoothed(labels.to(logits.device, precise), label_smoothing)
    losses = F.binary_cross_entropy_with_logits(logits.to(precise), targets, reduction="none")
    return normalise(losses.masked_fill(~due, 0).sum(), due.sum().clamp(min=1), num_items_in_batch)


def problem_type(labels: Tensor, num_labels: int) -> str:
    """Return transformers' problem type: one output: regression, whole labels: classes, others: multi-label."""
    if num_labels == 1:
        return "regression"
    return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


def question_answering_loss(
    scores: tuple[Tensor, Tensor],
    answers: tuple[Tensor | None, Tensor | None],
    mask: object = None,
    num_items_in_batch: Count = None,
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """Compute the mean loss of an answer's first and last token: logits 2 x (B, T), positions 2 x (B,).

    Positions outside the sequence are ignored, and no answer lies in padding, 0 in a mask (B, S).
    Source: Devlin et al. 2019, §4.2, https://arxiv.org/abs/1810.04805
    """
    losses = []
    for logits, places in zip(scores, answers, strict=True):
        if places is None:
            return None
        check_labels(logits.shape, places.masked_fill((places < 0) | (places >= logits.shape[1]), IGNORED), IGNORED)
        logits, places = logits.to(torch.promote_types(logits.dtype, torch.float32)), places.flatten().to(logits.device)
        real = real_places(mask, logits)
        real = torch.ones_like(logits, dtype=torch.bool) if real is None else real
        right = (torch.arange(logits.shape[1], device=logits.device) == places[:, None]) & real
        even = real.to(logits) / real.sum(-1, keepdim=True).clamp(min=1)
        shares = right.to(logits).lerp(even, label_smoothing)
        hidden = logits.masked_fill(~real, torch.finfo(logits.dtype).min)
        total = (F.cross_entropy(hidden, shares, reduction="none") * right.any(-1)).sum()
        losses.append(normalise(total, right.any(-1).sum().clamp(min=1), num_items_in_batch))
    return (losses[0] + losses[1]) / 2


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


def contrastive(
    images: Tensor, texts: Tensor, scale: Tensor, num_items_in_batch: Count = None, bias: Tensor | None = None
) -> Tensor:
    """Compute the contrastive loss of image and text embeddings: 2 x (B, D) of length 1, row i a pair.

    The pairs of all processes are in-batch negatives, so every process has to take part, and the loss and, under DDP,
    its gradients do not depend on their number. Gradient accumulation adds no negatives. With a bias, a sigmoid judges
    each score by itself; else a softmax compares those of an image, and those of a text.

    Source: Radford et al. 2021, CLIP, §2.3, figure 3, https://arxiv.org/abs/2103.00020; bias: Zhai et al. 2023, SigLIP,
        §3.2, algorithm 1, https://arxiv.org/abs/2303.15343
    """
    check_pairs(images, texts)
    all_images, all_texts, first = gather_pairs(images, texts)
    labels = torch.arange(len(images), device=images.device) + first
    scores = scale * images @ all_texts.to(images.device).T
    if bias is None:
        other = negative_log_likelihood(scale * texts @ all_images.to(texts.device).T, labels.to(texts.device), 1)
        total = (negative_log_likelihood(scores, labels, 1) + other.to(images.device)) / 2
    else:
        signs = 2 * F.one_hot(labels, len(all_texts)) - 1
        scores = (scores + bias).to(torch.promote_types(scores.dtype, torch.float32))
        total = -F.logsigmoid(signs * scores).sum()
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
