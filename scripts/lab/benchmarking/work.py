"""Count what a step has to compute and read at least: padding, unread logits and repeated reading are no work."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.lab.benchmarking.batches import Inputs
from qkv.scripts.lab.benchmarking.workloads import Workload

TRAINED = 3  # a step of training computes two products backward for each one forward
Lengths = list[int]
# Encoders of texts.
BOTH_WAYS = ("bert", "longformer", "big_bird")
# Projections of a decoder that are computed of the source, once.
OF_SOURCE = ("encoder_attn.k_proj", "encoder_attn.v_proj")


@dataclass(frozen=True)
class Work:
    """The operations of a forward pass, the numbers that each further token reads, and the tokens of a batch."""

    flops: float
    read: float
    tokens: float


def work(stock: Any, workload: Workload, inputs: Inputs) -> dict[str, float]:
    """Return the least floating-point operations and bytes of a step, and the real tokens it reads or writes."""
    counted = COUNTS[workload.model.reads](stock, workload, inputs)
    if workload.step == "generate":
        # What is read first gives the first new token; the others take a step each.
        read = stock.dtype.itemsize * counted.read * (workload.new_tokens - 1)
        return {"flops": counted.flops, "bytes": read, "tokens": float(workload.new_tokens * workload.batch)}
    passes = TRAINED if workload.step == "train" else 1
    told = passes == TRAINED and "input_ids" in inputs and getattr(stock.config, "kernel", "softmax") == "softmax"
    usual = {"model_flops": model_flops(stock, inputs)} if told else {}
    return {"flops": counted.flops * passes, "bytes": 0.0, "tokens": counted.tokens, **usual}


def model_flops(stock: Any, inputs: Inputs) -> float:
    """Return the operations by which model FLOPs utilisation is usually told: (6 N + 12 L D T) T for each text.

    N are the weights of products, T real tokens; masks are not taken into account.

    Source: Chowdhery et al. 2022, PaLM, appendix B, https://arxiv.org/abs/2204.02311
    """
    config, lengths = stock.config, real_lengths(inputs)
    squares = config.num_hidden_layers * config.hidden_size * sum(length**2 for length in lengths)
    return 6.0 * weights(stock) * sum(lengths) + 12.0 * squares


def least_seconds(work: dict[str, float], machine: dict[str, Any]) -> float:
    """Return the seconds that a machine takes at its limits."""
    return work["flops"] / machine["gemm_flops"] + work["bytes"] / machine["bandwidth_bytes"]


def weights(module: nn.Module, among: tuple[str, ...] = ("",)) -> int:
    """Return the number of weights that each token is multiplied with, of linear modules of these names."""
    linear = (
        each for name, each in module.named_modules() if isinstance(each, nn.Linear | Conv1D) and name.endswith(among)
    )
    return sum(each.weight.numel() for each in linear)


def real_lengths(inputs: Inputs) -> Lengths:
    """Return the real length of each text."""
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    return [int(length) for length in mask.sum(1)]


def attended(config: Any, lengths: Lengths, *, causal: bool) -> float:
    """Return the pairs of tokens that attend, within each text, within a window where there is one.

    The few global tokens beside a window are not counted.
    """
    if getattr(config, "kernel", "softmax") != "softmax":
        return 0.0  # a state in place of pairs; it costs little beside the products of weights
    window = getattr(config, "sliding_window", None) or max(lengths)
    if not causal:
        widths = getattr(config, "attention_window", None) or max(lengths)  # of all layers
        window = 1 + (widths if isinstance(widths, int) else widths[0])
        return float(sum(length * min(length, window) for length in lengths))
    return float(sum(min(length, window) * (length - min(length, window) / 2) for length in lengths))


def attention(config: Any, layers: int, pairs: float) -> float:
    """Return the operations of scores and of weighted sums."""
    return 4.0 * config.hidden_size * layers * pairs


def texts(stock: Any, workload: Workload, inputs: Inputs) -> Work:
    """Count the work of an encoder or a decoder, and of a head on the tokens whose logits are read."""
    config, lengths = stock.config, real_lengths(inputs)
    pairs = attended(config, lengths, causal=config.model_type not in BOTH_WAYS)
    flops = 2.0 * weights(stock.base_model) * sum(lengths) + attention(config, config.num_hidden_layers, pairs)
    labels = inputs.get("labels")
    if labels is not None:
        labels = labels[:, 1:] if workload.model.reads == "text" else labels
        # What is no part of the body, the output matrix among it, which the embeddings may share.
        flops += 2.0 * int((labels != IGNORED).sum()) * (weights(stock) - weights(stock.base_model))
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    cached = 2 * config.num_hidden_layers * heads * (config.hidden_size // config.num_attention_heads)
    length = workload.length + workload.new_tokens / 2
    return Work(flops, weights(stock) + cached * length * workload.batch, float(sum(lengths)))


def translation(stock: Any, workload: Workload, inputs: Inputs) -> Work:
    """Count the work of an encoder-decoder on pairs; beams share the keys and values of their source."""
    labels = inputs.get("labels")
    targets = [] if labels is None else [int(length) for length in (labels != IGNORED).sum(1)]
    return with_encoder(stock, workload, real_lengths(inputs), targets)


def with_encoder(stock: Any, workload: Workload, sources: Lengths, targets: Lengths) -> Work:
    """Count the work of an encoder on sources, and of a decoder on targets, or on new tokens."""
    config, encoder, decoder = stock.config, stock.get_encoder(), stock.get_decoder()
    once, output = weights(decoder, OF_SOURCE), stock.get_output_embeddings().weight.numel()
    flops = 2.0 * (weights(encoder) + once) * sum(sources)
    flops += attention(config, config.encoder_layers, attended(config, sources, causal=False))
    crossed = float(sum(source * target for source, target in zip(sources, targets, strict=False)))
    own = attended(config, targets, causal=True) if targets else 0.0
    flops += attention(config, config.decoder_layers, crossed + own)
    flops += 2.0 * (weights(decoder) - once + output) * sum(targets)
    written = workload.new_tokens / 2 * workload.batch * workload.beams
    cached = 2 * config.decoder_layers * config.d_model * (sum(sources) + written)
    return Work(flops, weights(decoder) - once + output + cached, float(sum(sources) + sum(targets)))


def classification(stock: Any, workload: Workload, inputs: Inputs) -> Work:
    """Count the work of a ViT on images."""
    config: Any = stock.config
    patches = (config.image_size // config.patch_size) ** 2
    places = [patches + 1] * workload.batch
    flops = 2.0 * (weights(stock.base_model) * sum(places) + convolution(stock) * patches * workload.batch)
    flops += attention(config, config.num_hidden_layers, attended(config, places, causal=False))
    return Work(flops + 2.0 * stock.classifier.weight.numel() * workload.batch, 0.0, float(sum(places)))


def convolution(stock: nn.Module) -> int:
    """Return the weights of a model's convolutions."""
    return sum(each.weight.numel() for each in stock.modules() if isinstance(each, nn.Conv1d | nn.Conv2d))


def transcription(stock: Any, workload: Workload, inputs: Inputs) -> Work:
    """Count the work of a speech model: of convolutions, the first on frames, the second on every other one."""
    features: Tensor = inputs["input_features"]
    frames = stock.config.max_source_positions
    whole = with_encoder(stock, workload, [frames] * len(features), [])
    first, second = (each.weight.numel() for each in (stock.get_encoder().conv1, stock.get_encoder().conv2))
    return Work(whole.flops + 2.0 * len(features) * frames * (2 * first + second), whole.read, whole.tokens)


COUNTS: dict[str, Callable[[Any, Workload, Inputs], Work]] = {
    "padded": texts,
    "masked": texts,
    "text": texts,
    "question": texts,
    "pairs": translation,
    "images": classification,
    "sound": transcription,
}
