"""Logit lens: what a model would predict if it ended after each of its layers.

Shapes: B batch, T tokens, D hidden_size, V vocabulary or classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from qkv.modeling.heads.loss import next_tokens
from qkv.scripts.probes.layers import IGNORED, Batch, ModelLayer, every_token_computed, hooked, without_cache

# Numbers of logits that are compared at a time.
LOGITS = 2**22


@torch.no_grad()
def lens_logits(
    model: nn.Module, batch: Batch, layers: Sequence[ModelLayer], outputs: Mapping[ModelLayer, Any]
) -> Iterator[tuple[ModelLayer, Tensor]]:
    """Yield the logits after each layer of the stack that a head reads, the last layer's being the model's own.

    The layers are skipped, and the rest of the model runs on what each of them gave: the final norm, a projection, the
    transform of a masked language model, a scale and a bound of logits are all as the model has them. A layer takes a
    forward without layers. `outputs` are those of every layer in a forward of the same batch.

    Source: nostalgebraist 2020, interpreting GPT: the logit lens,
        https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens
    Shapes: (B, T, V), of a classification (B, V)
    """
    given, last = without_cache(model, batch), {layer.stack: layer for layer in layers}
    for layer in layers:
        if layer.stack == head_stack(layers):
            ends = {**last, layer.stack: layer}
            replaced = {each.module: outputs[ends[each.stack]] for each in layers}
            with replaced_outputs(model, replaced):
                yield layer, model(**given).logits


def head_stack(layers: Sequence[ModelLayer]) -> str:
    """Return the stack that a head reads: the decoder of an encoder-decoder, else the only one."""
    stacks = dict.fromkeys(layer.stack for layer in layers)
    return "decoder" if "decoder" in stacks else next(iter(stacks))


@contextmanager
def replaced_outputs(model: nn.Module, outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Let modules return what is given for each, and compute nothing."""
    own = {module: vars(module).get("forward") for module in outputs}
    with ExitStack() as stack:
        stack.enter_context(every_token_computed(model))
        # A hook keeps a model from going around the forward of its layers.
        stack.enter_context(hooked(dict.fromkeys(outputs, lambda *_: None)))
        try:
            for module, output in outputs.items():
                module.forward = lambda *_, output=output, **__: output
            yield
        finally:
            for module, forward in own.items():
                del module.forward
                if forward is not None:
                    module.forward = forward


def lens_targets(model: Any, batch: Batch, logits: Tensor) -> Tensor:
    """Return what each prediction should be, -100 where none is due: (B, T, V) -> (B, T), of a classification (B,).

    Decoders predict the next token: of the labels, or else of the inputs. Elsewhere it is the labels, or the inputs of
    a decoder. Where a batch says nothing of the kind it is what the model itself predicts, by these logits of its last
    layer.
    """
    labels, shape = batch.get("labels"), logits.shape[:-1]
    text = batch.get("decoder_input_ids" if model.config.is_encoder_decoder else "input_ids")
    if predicts_next_token(model) and (text is not None or labels is not None):
        return shifted(batch, text, labels)
    if isinstance(labels, Tensor) and labels.shape == shape and not labels.is_floating_point():
        return labels
    if labels is None and text is not None and text.shape == shape and model.can_generate():
        return shifted({"attention_mask": batch.get("decoder_attention_mask")}, text, None)
    predicted: Tensor = logits.argmax(-1)
    mask = batch.get("attention_mask")
    return predicted.masked_fill(~mask.bool(), IGNORED) if mask is not None and mask.shape == shape else predicted


def has_classes(model: Any) -> bool:
    """Return False where each logit is the score of a token or pair, and not one of several classes."""
    return not type(model).__name__.endswith(("ForContactPrediction", "ForReplacedTokenDetection"))


def predicts_next_token(model: Any) -> bool:
    """Return True for a causal language model, whose labels are shifted by the model itself."""
    return bool(model.can_generate()) and not model.config.is_encoder_decoder


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
    rows, wanted = logits[due], targets[due].to(logits.device)
    sums = {"lens_entropy": 0.0, "lens_probability": 0.0, "lens_rank": 0.0}
    for own, target in zip(*(each.split(max(LOGITS // logits.shape[-1], 1)) for each in (rows, wanted)), strict=True):
        scores = own.float().log_softmax(-1)
        of_target = scores.gather(-1, target[:, None])
        sums["lens_entropy"] -= (scores.exp() * scores).nan_to_num(0).sum().item()
        sums["lens_probability"] += of_target.exp().sum().item()
        sums["lens_rank"] += (1 + (scores > of_target).sum(-1)).sum().item()
    return {name: value / max(len(rows), 1) for name, value in sums.items()}
