"""Inspect a model: `qkv.inspect` runs all probes on one batch and returns a table and a figure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.attention.capture import capture_attention, hooked
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.attention.records import AttentionRecord
from qkv.scripts.attention.statistics import (
    attention_distance,
    attention_entropy,
    first_token_attention,
    mean_of_heads,
)
from qkv.scripts.probes.induction import induction_score, is_causal_language_model, repeated_tokens
from qkv.scripts.probes.layers import (
    IGNORED,
    Batch,
    Place,
    activation_statistics,
    evaluating,
    hidden_of,
    layer_gradients,
    lens_logits,
    lens_statistics,
    lens_targets,
    model_layers,
    one_pass,
    real_tokens,
)
from qkv.scripts.probes.positions import Grid, Places, add_positions, places_of, recorded_grids
from qkv.scripts.probes.table import ProbeTable

# Models whose logits are scores of tokens or pairs, and not of several classes.
WITHOUT_CLASSES = ("ForContactPrediction", "ForReplacedTokenDetection")


def inspect(model: PreTrainedModel, batch: Batch | None = None) -> ProbeTable:
    """Run all probes of a model, ours or transformers', on one batch, and return their table, which draws a figure.

        table = qkv.inspect(model, batch)   # the inputs of a forward; None is random tokens for a model of texts
        pandas.DataFrame(table.rows)
        table.save("probes.svg")

    By head, over the real queries of the batch: `entropy` of attention in nats; `distance`, the mean distance in
    tokens, in images in patches and without class tokens; `first_token`, attention of later queries to the first token
    of their row, in cross-attention of all queries. `induction` of causal language models, on random tokens.

    By layer, over the real tokens of its output: `norm`, the mean length; `kurtosis` of all numbers; `max_abs`; with
    labels `gradient_norm` and `gradient_kurtosis`, of the gradient of the loss by that output. `lens_entropy`,
    `lens_probability` and `lens_rank` of the classes predicted if the model ended there; the target is the next token,
    or the labels, or else the model's prediction.

    By distance: `position_similarity`, the cosine similarity of added position vectors, or with rotations the expected
    score of two equal vectors over that at distance 0.

    Probes without data are absent: distances of object queries, all but cross-attention of recurrent models, attention
    of kernel="gated_delta", entropy and distance of layers with negative weights, which kernel="linear" has with
    rotations. Of a model of pairs, residues are probed, in one pass. Dropout is off; weights and gradients stay.

    Cost: one forward; one forward and backward with labels; a forward for each layer of the lens; one of 400 tokens for
    induction. The weights of one layer, (B, H, T, S), and the outputs of all layers, (B, T, D), are kept at a time.

    ValueError for a model whose attention cannot be captured, and for a batch that is no dict or missing.

    Source: see the functions of each probe; distance in texts: Clark et al. 2019, https://arxiv.org/abs/1906.04341
    """
    if batch is not None and not isinstance(batch, Mapping):
        raise ValueError(
            f"batch is a {type(batch).__name__}, and should be the inputs of a forward by name; give a dict, as "
            "{'input_ids': ...}"
        )
    table = ProbeTable(type(model).__name__)
    batch = random_batch(model) if batch is None else batch
    with evaluating(model):
        seen = probe_forward(table, model, batch)
        if getattr(seen.outputs, "loss", None) is not None:
            for place, gradient in layer_gradients(model, batch).items():
                table.add_layer(place, activation_statistics(seen.real_tokens(place, gradient), "gradient_"))
        probe_lens(table, model, batch, seen)
        if is_causal_language_model(model):
            for layer, scores in enumerate(induction_score(model)):
                table.add_heads("induction", ("decoder", layer), scores)
        add_positions(table, model, batch, seen.tokens, seen.grids)
    return table


def random_batch(model: Any) -> Batch:
    """Return random tokens, repeated once, for a model that reads nothing else; ValueError for any other."""
    config = model.config
    if model.main_input_name != "input_ids" or config.is_encoder_decoder or hasattr(config, "vision_config"):
        raise ValueError(
            f"batch=None is random tokens, and {type(model).__name__} reads more or something else; give the inputs of "
            "a forward as a dict"
        )
    return {"input_ids": repeated_tokens(model)}


@dataclass
class Forward:
    """One forward: outputs of the model and its layers, and by stack the real queries, number of tokens and grid."""

    outputs: Any = None
    layers: dict[Place, Any] = field(default_factory=dict)
    real: dict[str, Tensor | None] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)

    def real_tokens(self, place: Place, hidden: Tensor) -> Tensor:
        """Return the vectors of the real tokens of a layer: (N, D)."""
        return real_tokens(hidden, self.real.get(place[0]))


@torch.no_grad()
def probe_forward(table: ProbeTable, model: PreTrainedModel, batch: Batch) -> Forward:
    """Run the model once, and add the rows of heads and of activations."""
    seen, wanted = Forward(), dict[str, list[int]]()

    def probe_heads(record: AttentionRecord) -> None:
        real = real_queries(record, padding_mask(model, record.stack, batch))
        seen.real[record.stack], seen.tokens[record.stack] = real, record.num_queries
        places = places_of(model, record.stack, record.num_queries, batch, seen.grids)
        for probe, values in head_statistics(record, real, places):
            table.add_heads(probe, (record.stack, record.layer), values)

    def probe_output(place: Place, output: Any) -> None:
        seen.layers[place] = output
        vectors = seen.real_tokens(place, hidden_of(output))
        table.add_layer(place, activation_statistics(vectors) | {"max_abs": vectors.abs().max().item()})

    for layer in attention_layers(model):
        if layer.kind != "gated_delta" and layer.is_of_tokens:
            wanted.setdefault(layer.stack, []).append(layer.number)
    hooks = {each: lambda *run, p=place: probe_output(p, run[2]) for place, each in model_layers(model).items()}
    with recorded_grids(model) as seen.grids, capture_attention(model, layers=wanted, each=probe_heads), hooked(hooks):
        seen.outputs = model(**one_pass(model, batch))
    return seen


def probe_lens(table: ProbeTable, model: PreTrainedModel, batch: Batch, seen: Forward) -> None:
    """Add the rows of the logit lens, where a model has layers and predicts classes."""
    logits = getattr(seen.outputs, "logits", None)
    if isinstance(logits, Tensor) and seen.layers and not type(model).__name__.endswith(WITHOUT_CLASSES):
        targets = lens_targets(model, batch, logits)
        for place, own in lens_logits(model, batch, seen.layers):
            table.add_layer(place, lens_statistics(own, targets))


def head_statistics(
    record: AttentionRecord, mask: Tensor | None, places: Places | None
) -> Iterator[tuple[str, Tensor]]:
    """Yield the statistics of the heads of a record, means over real queries: (H,) each."""
    weights, count = record.weights, record.num_queries
    real = weights.new_ones(len(weights), count, dtype=torch.bool) if mask is None else mask
    real = real & (weights.amax((1, 3)) > 0)
    # Weights of kernel="linear" with rotations may be negative.
    is_distribution, is_self = bool((weights >= 0).all()), record.stack != "cross" and weights.shape[-1] == count
    if is_distribution:
        yield "entropy", mean_of_heads(attention_entropy(weights), real)
    if is_distribution and is_self and places is not None:
        own = weights[:, :, places.prefix :, places.prefix :]
        distance = attention_distance(own, places.places) / own.float().sum(-1)
        yield "distance", mean_of_heads(distance, real[:, places.prefix :])
    first = (real if is_self else weights.amax((1, 2)) > 0).int().argmax(-1)
    later = real & (torch.arange(count, device=real.device) > first[:, None]) if is_self else real
    yield "first_token", mean_of_heads(first_token_attention(weights, first), later)


def real_queries(record: AttentionRecord, mask: Tensor | None) -> Tensor | None:
    """Return which queries of a record are real by a mask of the inputs: (B, q), or None where that is unknown.

    A mask of another shape, as of sound before its convolutions, tells nothing; a token is real that some query sees.
    """
    if mask is None:
        return None
    rows, queries, keys = len(record.weights), *record.weights.shape[-2:]
    if mask.shape[-1] == queries and mask.numel() == rows * queries:
        return mask.reshape(rows, queries).bool()
    return record.weights.amax((1, 2)) > 0 if queries == keys else None


def padding_mask(model: Any, stack: str, batch: Batch) -> Tensor | None:
    """Return the mask that a batch has for the queries of a stack, or None."""
    mask, labels, alignment = batch.get("attention_mask"), batch.get("labels"), batch.get("msa_ids")
    if stack == "image":
        return None
    if stack in ("decoder", "cross") and model.config.is_encoder_decoder:
        given = batch.get("decoder_attention_mask")
        # Without inputs a decoder reads the labels, shifted.
        is_read = given is None and "decoder_input_ids" not in batch and isinstance(labels, Tensor) and labels.ndim == 2
        masked: Tensor | None = labels != IGNORED if is_read else given  # type: ignore[assignment]
        return masked
    if alignment is not None:  # (B, sequences, L), the chain first
        sequences = batch.get("msa_attention_mask", torch.ones_like(alignment[..., 0]))
        sequences = torch.cat((torch.ones_like(sequences[:, :1]), sequences), dim=1)
        return sequences[..., None] * (torch.ones_like(alignment[:, 0]) if mask is None else mask)[:, None]
    return batch.get("pixel_mask") if mask is None else mask
