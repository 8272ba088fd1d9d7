"""Inspect a model: `qkv.inspect` probes its heads on one batch and returns a table and a figure."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from qkv.scripts.attention.capture import capture_attention, evaluating, without_cache
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.attention.records import AttentionRecord
from qkv.scripts.attention.statistics import (
    attention_distance,
    attention_entropy,
    first_token_attention,
    grid_of,
    mean_of_queries,
)
from qkv.scripts.probes.induction import induction_score, is_causal_language_model
from qkv.scripts.probes.table import ProbeTable

Batch = Mapping[str, Any]
IGNORED = -100  # a label where no prediction is due


@torch.no_grad()
def inspect(model: PreTrainedModel, batch: Batch) -> ProbeTable:
    """Probe every head of a model, ours or transformers', on one batch, and return a table, which draws a figure.

        table = qkv.inspect(model, batch)   # the inputs of a forward, as a dict
        pandas.DataFrame(table.rows)
        table.figure().savefig("probes.svg")

    Over the real queries of the batch: `entropy` of attention in bits; `distance`, the mean distance in tokens, in
    images in patches and without class tokens; `first_token`, attention of later queries to the first token of their
    row, in cross-attention of all queries. `induction` of causal language models, on random tokens.

    Probes without data are absent: distances of object queries, kernel="gated_delta", entropy and distance of layers
    with negative weights, which kernel="linear" has with rotations. Of a model of pairs, residues are probed, in one
    pass. Dropout is off; the model stays as it is. The weights of one layer, (B, H, T, S), are kept at a time.

    ValueError for a model whose attention cannot be captured.

    Source: see the functions of each probe; distance in texts: Clark et al. 2019, https://arxiv.org/abs/1906.04341
    """
    table = ProbeTable(type(model).__name__)

    def probe_heads(record: AttentionRecord) -> None:
        queries = real_queries(model, record, batch)
        for probe, values in head_statistics(record, queries, places_of(model, record, batch)):
            table.add(probe, (record.stack, record.layer), values)

    probed = [each for each in attention_layers(model) if each.kind != "gated_delta" and each.is_of_tokens]
    wanted = {each.stack: [layer.number for layer in probed if layer.stack == each.stack] for each in probed}
    once = {"num_recycles": 0} if getattr(model.config, "num_recycles", 0) else {}
    inputs = without_cache(model, {**once, **batch})
    with evaluating(model), capture_attention(model, inputs, layers=wanted, each=probe_heads):
        pass
    for number, scores in enumerate(induction_score(model) if is_causal_language_model(model) else ()):
        table.add("induction", ("decoder", number), scores)
    return table


def head_statistics(
    record: AttentionRecord, real: Tensor, places: tuple[Tensor, int] | None
) -> Iterator[tuple[str, Tensor]]:
    """Yield the statistics of the heads of a record, means over real queries: (H,) each."""
    weights, count = record.weights, record.num_queries
    # Weights of kernel="linear" with rotations may be negative.
    is_distribution, is_self = bool((weights >= 0).all()), record.stack != "cross" and weights.shape[-1] == count
    if is_distribution:
        yield "entropy", mean_of_queries(attention_entropy(weights), real[:, None], (0, 2))
    if is_distribution and is_self and places is not None:
        yield "distance", mean_of_queries(attention_distance(weights, *places), real[:, None, places[1] :], (0, 2))
    first = (real if is_self else weights.amax((1, 2)) > 0).int().argmax(-1)
    later = real & (torch.arange(count, device=real.device) > first[:, None]) if is_self else real
    yield "first_token", mean_of_queries(first_token_attention(weights, first), later[:, None], (0, 2))


def places_of(model: Any, record: AttentionRecord, batch: Batch) -> tuple[Tensor, int] | None:
    """Return the places (T, C) of the tokens of a stack, and how many leading tokens have none, as a class token.

    None where they have no order, as object queries, and where the grid of an image is unknown.
    """
    count, images = record.num_queries, batch.get("pixel_values")
    is_decoder = record.stack in ("decoder", "cross")
    if images is None or record.stack == "text" or (is_decoder and "decoder_input_ids" in batch):
        return torch.arange(count)[:, None], 0
    found = None if is_decoder else grid_of(model.config, count, images)
    return None if found is None else (torch.cartesian_prod(*map(torch.arange, found[0])), found[1])


def real_queries(model: Any, record: AttentionRecord, batch: Batch) -> Tensor:
    """Return which queries of a record are real (B, q): they see a key, and some query sees them.

    Of a decoder with an encoder the batch says it, for cross-attention has other keys, and labels have no mask.
    """
    weights, labels, mask = record.weights, batch.get("labels"), batch.get("decoder_attention_mask")
    real = (weights != 0).any(3).any(1)
    if (sequences := batch.get("msa_attention_mask")) is not None:  # of an alignment, whose chain is the first
        real = real & F.pad(sequences, (1, 0), value=1).flatten()[:, None].bool()
    if record.stack in ("decoder", "cross") and model.config.is_encoder_decoder:
        # Without inputs a decoder reads the labels, shifted.
        if mask is None and "decoder_input_ids" not in batch and isinstance(labels, Tensor) and labels.ndim == 2:
            mask = labels.ne(IGNORED)
        return real if mask is None else real & mask.bool()
    is_self = record.stack != "cross" and weights.shape[-1] == record.num_queries
    return real & (weights != 0).any(2).any(1) if is_self else real
