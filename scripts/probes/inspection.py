"""Inspect a model: `qkv.inspect` runs all probes on one batch and returns a table and a figure."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.attention import statistics
from qkv.scripts.attention.capture import capture_attention
from qkv.scripts.attention.core import hooked, models_around, unskipped
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.attention.records import AttentionRecord, CapturedAttention
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
from qkv.scripts.probes.places import Grid, Places, places_of, recorded_grids
from qkv.scripts.probes.positions import add_positions
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
    inspection = Inspection(model, random_batch(model) if batch is None else batch)
    with evaluating(model):
        inspection.run()
    return inspection.table


def random_batch(model: Any) -> Batch:
    """Return random tokens, repeated once, for a model that reads nothing else; ValueError for any other."""
    config = model.config
    if model.main_input_name != "input_ids" or config.is_encoder_decoder or hasattr(config, "vision_config"):
        raise ValueError(
            f"batch=None is random tokens, and {type(model).__name__} reads more or something else; give the inputs of "
            "a forward as a dict"
        )
    return {"input_ids": repeated_tokens(model)}


class Inspection:
    """The probes of one model on one batch: masks of real queries, numbers of tokens and grids by stack."""

    def __init__(self, model: PreTrainedModel, batch: Batch) -> None:
        self.model, self.batch, self.table = model, batch, ProbeTable(type(model).__name__)
        self.masks, self.tokens, self.grids = dict[str, Tensor | None](), dict[str, int](), dict[str, Grid]()
        self.outputs = dict[Place, Any]()

    def run(self) -> None:
        """Add the rows of all probes."""
        outputs = self.observe()
        if getattr(outputs, "loss", None) is not None:
            for place, gradient in layer_gradients(self.model, self.batch).items():
                self.add_layer(place, activation_statistics(self.real(place, gradient), "gradient_"))
        logits = getattr(outputs, "logits", None)
        if isinstance(logits, Tensor) and self.outputs and not type(self.model).__name__.endswith(WITHOUT_CLASSES):
            targets = lens_targets(self.model, self.batch, logits)
            for place, own in lens_logits(self.model, self.batch, self.outputs):
                self.add_layer(place, lens_statistics(own, targets))
        if is_causal_language_model(self.model):
            for layer, scores in enumerate(induction_score(self.model)):
                self.add_heads("induction", ("decoder", layer), scores)
        add_positions(self.table, self.model, self.batch, self.tokens, self.grids)

    @torch.no_grad()
    def observe(self) -> Any:
        """Run the model once, and add the rows of heads and of activations."""
        every, wanted = attention_layers(self.model), dict[str, list[int]]()
        for layer in every:
            if layer.kind != "gated_delta" and layer.is_of_tokens:
                wanted.setdefault(layer.stack, []).append(layer.number)
        with ExitStack() as stack:
            self.grids = stack.enter_context(recorded_grids(self.model))
            stack.enter_context(unskipped(models_around(self.model)))
            captured = stack.enter_context(capture_attention(self.model, layers=wanted))
            # Hooks run in the order in which they came: the capture's, by which a record is complete, were before.
            stack.enter_context(
                hooked(dict.fromkeys((layer.module for layer in every), lambda *_: self.drain(captured)))
            )
            hooks = {
                each: lambda *seen, p=place: self.keep(p, seen[2]) for place, each in model_layers(self.model).items()
            }
            stack.enter_context(hooked(hooks))
            return self.model(**one_pass(self.model, self.batch))

    def drain(self, captured: CapturedAttention) -> None:
        """Add the rows of heads, and drop their weights."""
        for record in captured:
            mask = real_queries(record, padding_mask(self.model, record.stack, self.batch))
            self.masks[record.stack], self.tokens[record.stack] = mask, record.num_queries
            places = places_of(self.model, record.stack, record.num_queries, self.batch, self.grids)
            for probe, values in head_statistics(record, mask, places):
                self.add_heads(probe, (record.stack, record.layer), values)
        captured.clear()

    def keep(self, place: Place, output: Any) -> None:
        """Add the rows of a layer's output, and keep it for the logit lens."""
        self.outputs[place] = output
        vectors = self.real(place, hidden_of(output))
        self.add_layer(place, activation_statistics(vectors) | {"max_abs": vectors.abs().max().item()})

    def real(self, place: Place, hidden: Tensor) -> Tensor:
        """Return the vectors of a layer's real tokens: (N, D)."""
        return real_tokens(hidden, self.masks.get(place[0]))

    def add_heads(self, probe: str, place: Place, values: Tensor) -> None:
        """Add a row for each head that has a value: (H,)."""
        for head, value in enumerate(values.tolist()):
            if not math.isnan(value):
                self.table.add(probe, place[0], value, layer=place[1], head=head)

    def add_layer(self, place: Place, values: Mapping[str, float]) -> None:
        """Add a row for each statistic of a layer."""
        for probe, value in values.items():
            self.table.add(probe, place[0], value, layer=place[1])


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
        yield "entropy", statistics.mean_of_heads(statistics.attention_entropy(weights), real)
    if is_distribution and is_self and places is not None:
        own = weights[:, :, places.prefix :, places.prefix :]
        distance = statistics.attention_distance(own, places.places) / own.float().sum(-1)
        yield "distance", statistics.mean_of_heads(distance, real[:, places.prefix :])
    first = (real if is_self else weights.amax((1, 2)) > 0).int().argmax(-1)
    later = real & (torch.arange(count, device=real.device) > first[:, None]) if is_self else real
    yield "first_token", statistics.mean_of_heads(statistics.first_token_attention(weights, first), later)


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
        return labels != IGNORED if is_read else given
    if alignment is not None:  # (B, sequences, L), the chain first
        sequences = batch.get("msa_attention_mask", torch.ones_like(alignment[..., 0]))
        sequences = torch.cat((torch.ones_like(sequences[:, :1]), sequences), dim=1)
        return sequences[..., None] * (torch.ones_like(alignment[:, 0]) if mask is None else mask)[:, None]
    return batch.get("pixel_mask") if mask is None else mask
