"""Probes of the output of each layer: statistics of activations, and the logit lens.

Shapes: B batch, T tokens, N real tokens of a batch without padding, D hidden_size, V vocabulary or classes.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from qkv.modeling.heads.loss import next_tokens
from qkv.scripts.attention.capture import hooked, whole_layers
from qkv.scripts.attention.layers import attention_layers

Batch = Mapping[str, Any]
Place = tuple[str, int]  # a layer: the stack as `capture_attention` names it, and the number in it
IGNORED = -100  # a label where no prediction is due


def model_layers(model: nn.Module) -> dict[Place, nn.Module]:
    """Return the layers of each stack, up to the first number in the path of its attention; none for recurrent models.

    ValueError for a model whose attention cannot be captured.
    """
    layers, paths = dict[Place, nn.Module](), set[str]()
    for attention in attention_layers(model):
        match = re.match(r".*?\.\d+(?=\.|$)", attention.path)
        # Cross-attention stands in a layer of the decoder, after its self-attention.
        if attention.kind != "recurrent" and match and match[0] not in paths:
            layers[attention.stack, attention.number] = model.get_submodule(match[0])
            paths.add(match[0])
    return layers


def hidden_of(output: Any) -> Tensor:
    """Return the hidden states of a layer's output, which in some models is a tuple."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def one_pass(model: Any, batch: Batch) -> dict[str, Any]:
    """Return the inputs of a forward that keeps no cache and passes once through the layers."""
    if "use_cache" in signature(type(model).forward).parameters:
        return {"use_cache": False, **batch}
    return {"num_recycles": 0, **batch} if getattr(model.config, "num_recycles", 0) else dict(batch)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off in this context."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def real_tokens(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Return the vectors of the real tokens, single precision at least; padding may have been removed before.

    Shapes: hidden (B, T, D), or of an alignment (B, sequences, L, D), with as many marks, or (1, N, D) -> (N, D)
    """
    vectors = hidden.flatten(0, -2)
    vectors = vectors[mask.flatten()] if mask is not None and mask.numel() == len(vectors) else vectors
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def kurtosis(values: Tensor) -> Tensor:
    """Compute the kurtosis of all numbers, their fourth central moment over their variance squared: (...) -> ().

    It is 3 for a normal distribution and grows with outliers, which make a tensor hard to quantise.

    Source: Bondarenko et al. 2023, Quantizable Transformers, §5, https://arxiv.org/abs/2306.12929
    """
    squares = (values.double() - values.double().mean()) ** 2
    return (squares**2).mean() / squares.mean() ** 2


def activation_statistics(vectors: Tensor) -> dict[str, float]:
    """Return the mean norm, the kurtosis and the greatest magnitude of vectors: (N, D)."""
    means = {"norm": vectors.norm(dim=-1).mean(), "kurtosis": kurtosis(vectors), "max_abs": vectors.abs().max()}
    return {name: value.item() for name, value in means.items()}


@torch.no_grad()
def lens_logits(model: nn.Module, batch: Batch, outputs: Mapping[Place, Any]) -> Iterator[tuple[Place, Tensor]]:
    """Yield the logits after each layer of the stack that a head reads; the last layer's are the model's.

    The last layer returns the output of each layer in turn, so that the final norm, a projection and a bound of logits
    are those of the model. A layer takes a forward. `outputs` are those of every layer in a forward of this batch.

    Source: nostalgebraist 2020, interpreting GPT: the logit lens,
        https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens
    Shapes: (B, T, V), of a classification (B, V)
    """
    layers = model_layers(model)
    stacks = [stack for stack, _ in layers]
    head_stack = "decoder" if "decoder" in stacks else stacks[0]
    read = {place: module for place, module in layers.items() if place[0] == head_stack}
    last = list(read.values())[-1]
    for place in read:
        with whole_layers(model), hooked({last: lambda *_, place=place: outputs[place]}):
            yield place, model(**one_pass(model, batch)).logits


def lens_targets(model: Any, batch: Batch, logits: Tensor) -> Tensor:
    """Return the right prediction at each place, -100 where none is due: (B, T, V) -> (B, T), of a classification (B,).

    Decoders predict the next token: of the labels, or else of the inputs. Elsewhere it is the labels, or the inputs of
    a decoder. A batch without any of these has the model's predictions, by the logits of its last layer.
    """
    labels, is_encoder_decoder = batch.get("labels"), model.config.is_encoder_decoder
    text = batch.get("decoder_input_ids" if is_encoder_decoder else "input_ids")
    if model.can_generate() and not is_encoder_decoder and (text is not None or labels is not None):
        return shifted(batch, text, labels)
    if isinstance(labels, Tensor) and labels.shape == logits.shape[:-1] and not labels.is_floating_point():
        return labels
    if labels is None and text is not None and text.shape == logits.shape[:-1] and model.can_generate():
        return shifted({"attention_mask": batch.get("decoder_attention_mask")}, text, None)
    predicted, mask = logits.argmax(-1), batch.get("attention_mask")
    if mask is None or mask.shape != predicted.shape:
        return predicted
    return predicted.masked_fill(~mask.bool(), IGNORED)


def shifted(batch: Batch, text: Tensor | None, labels: Tensor | None) -> Tensor:
    """Return the next token at each real place (B, T), -100 at padding, at the last token and where padding follows."""
    mask = batch.get("attention_mask")
    padding = None if mask is None else ~mask.bool()
    if labels is None and text is not None:
        labels = text if padding is None else text.masked_fill(padding, IGNORED)
    targets: Any = next_tokens(labels, None, batch.get("position_ids"), batch.get("cu_seq_lens_q"))
    return targets if padding is None or padding.shape != targets.shape else targets.masked_fill(padding, IGNORED)


def lens_statistics(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Average over predictions that are due: the entropy in nats, and the target's probability and rank, 1 the best.

    Shapes: logits (..., V), targets (...), -100 where no prediction is due
    """
    due = targets != IGNORED
    scores, wanted = logits[due].float().log_softmax(-1), targets[due].to(logits.device)[:, None]
    of_target = scores.gather(-1, wanted)
    values = {
        "lens_entropy": torch.special.entr(scores.exp()).sum(-1),
        "lens_probability": of_target.exp(),
        "lens_rank": 1.0 + (scores > of_target).sum(-1),
    }
    return {name: value.mean().item() for name, value in values.items() if due.any()}
