"""Inspect a model: `qkv.inspect` runs all probes on one batch and returns a table and a figure."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.attention.records import AttentionRecord
from qkv.scripts.probes import heads
from qkv.scripts.probes.activations import activation_statistics, gradient_statistics
from qkv.scripts.probes.induction import induction_score, is_causal_language_model, repeated_tokens
from qkv.scripts.probes.layers import (
    Batch,
    ModelLayer,
    evaluating,
    hidden_of,
    model_layers,
    observed_forward,
    padding_mask,
    real_queries,
    real_tokens,
)
from qkv.scripts.probes.logit_lens import has_classes, lens_logits, lens_statistics, lens_targets
from qkv.scripts.probes.places import Grid, places_of, recorded_grids
from qkv.scripts.probes.position_rows import PositionRows
from qkv.scripts.probes.table import ProbeTable


def inspect(model: PreTrainedModel, batch: Batch | None = None) -> ProbeTable:
    """Run all probes of a model on one batch, and return their table, which draws a figure.

    Ours and transformers' models, on the backend that they use. A batch is the inputs of a forward; None is random
    tokens, repeated once, for a model of texts.

        table = qkv.inspect(model, batch)
        pandas.DataFrame(table.rows)
        table.save("probes.svg")

    By head, over the real queries of the batch: `entropy` of attention in nats; `distance`, the mean distance in
    tokens, in images in patches and without class tokens; `first_token`, attention of later queries to the first token
    of their row, in cross-attention of all queries. `induction` of causal language models, on random tokens of its own.

    By layer, over the real tokens of its output: `norm`, the mean length; `kurtosis` of all numbers; `max_abs`. Of the
    gradient of the loss by that output `gradient_norm` and `gradient_kurtosis`; without labels they are absent.

    By layer, of models with `logits` of several classes: `lens_entropy`, `lens_probability` and `lens_rank` of what the
    model would predict if it ended there. The target is the next token, or the labels, or without them what the model
    predicts.

    By distance: `position_similarity`, the cosine similarity of added position vectors, or with rotations the expected
    score of two equal vectors over that at distance 0; `position_bias` by head, what is added to scores.

    Probes that a model has nothing for are absent: distances of object queries, all but cross-attention of recurrent
    models, attention of kernel="gated_delta", entropy and distance of layers with negative weights, which
    kernel="linear" has with rotations. Probes of a model of pairs are those of its residues, in one pass. Dropout is
    off, weights and their gradients stay as they are.

    Cost: one forward; one forward and backward with labels; a forward without layers for each layer of the lens; one of
    400 tokens for induction. At a time there are the attention weights of one layer, (B, H, T, S), and the outputs of
    all layers, (B, T, D) each.

    ValueError for a model whose attention cannot be captured, as `qkv.capture_attention` says, for a batch that is no
    dict, and without one for a model that reads no tokens.

    Source: entropy, distance in texts: Clark et al. 2019, §3, https://arxiv.org/abs/1906.04341; distance in images:
        Dosovitskiy et al. 2021, §4.5, https://arxiv.org/abs/2010.11929; induction: Olsson et al. 2022,
        https://arxiv.org/abs/2209.11895; sinks: Xiao et al. 2024, §3.1, https://arxiv.org/abs/2309.17453; kurtosis:
        Bondarenko et al. 2023, §5, https://arxiv.org/abs/2306.12929; logit lens: nostalgebraist 2020,
        https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens
    """
    if batch is not None and not isinstance(batch, Mapping):
        raise ValueError(
            f"batch is a {type(batch).__name__}, and should be the inputs of a forward by name; give a dict, as "
            "{'input_ids': ...}"
        )
    inspection = Inspection(model, random_batch(model) if batch is None else batch)
    with evaluating(model):
        outputs = inspection.forward()
        if getattr(outputs, "loss", None) is not None:
            inspection.gradients()
        if isinstance(getattr(outputs, "logits", None), Tensor) and has_classes(model):
            inspection.logit_lens(outputs.logits)
        inspection.induction()
        inspection.positions()
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
    """The probes of one model on one batch, and what one learns for the next: padding and places of the tokens."""

    def __init__(self, model: PreTrainedModel, batch: Batch) -> None:
        self.model, self.batch, self.table = model, batch, ProbeTable(type(model).__name__)
        self.layers = model_layers(model)
        self.masks: dict[str, Tensor | None] = {}
        self.tokens: dict[str, int] = {}
        self.grids: dict[str, Grid] = {}
        self.layer_outputs: dict[ModelLayer, Any] = {}

    def forward(self) -> Any:
        """Run the model once: statistics of heads and activations."""
        with recorded_grids(self.model) as self.grids:
            return observed_forward(self.model, self.batch, self.on_attention, self.on_layer)

    def on_attention(self, record: AttentionRecord) -> None:
        """Add the rows of a layer's heads."""
        mask = real_queries(record, padding_mask(self.model, record.stack, self.batch))
        weights = record.weights
        real = weights.new_ones(len(weights), record.num_queries, dtype=torch.bool) if mask is None else mask
        self.masks[record.stack], self.tokens[record.stack] = mask, record.num_queries
        real = real & (weights.amax((1, 3)) > 0)
        # Those of kernel="linear" with rotations are no distribution.
        is_distribution = bool((weights >= 0).all())
        if is_distribution:
            self.add_heads("entropy", record, heads.attention_entropy(weights), real)
        if record.stack == "cross" or weights.shape[-1] != record.num_queries:
            first, later = (weights.amax((1, 2)) > 0).int().argmax(-1), real
        else:
            places = places_of(self.model, record.stack, record.num_queries, self.batch, self.grids)
            if places is not None and is_distribution:
                patches = weights[:, :, places.prefix :, places.prefix :]
                distance = heads.attention_distance(patches, places.places.to(weights.device))
                self.add_heads("distance", record, distance, real[:, places.prefix :])
            first = real.int().argmax(-1)
            later = real & (torch.arange(record.num_queries, device=real.device) > first[:, None])
        self.add_heads("first_token", record, heads.first_token_attention(weights, first), later)

    def add_heads(self, probe: str, record: AttentionRecord, values: Tensor, real: Tensor) -> None:
        """Add a row for each head: the mean over real queries, of which one token has no later ones."""
        for head, value in enumerate(heads.mean_of_heads(values, real).tolist()):
            if math.isnan(value):
                continue
            self.table.add(probe, record.stack, value, layer=record.layer, head=head)

    def on_layer(self, layer: ModelLayer, output: Any) -> None:
        """Add the rows of a layer's output, and keep it for the logit lens."""
        self.layer_outputs[layer] = output
        self.add_layer(layer, activation_statistics(real_tokens(hidden_of(output), self.masks.get(layer.stack))))

    def add_layer(self, layer: ModelLayer, statistics: dict[str, float]) -> None:
        """Add a row for each statistic of a layer."""
        for probe, value in statistics.items():
            self.table.add(probe, layer.stack, value, layer=layer.number)

    def gradients(self) -> None:
        """Add the rows of gradients."""
        statistics = gradient_statistics(self.model, self.batch, self.masks)
        for layer in self.layers:
            self.add_layer(layer, statistics.get((layer.stack, layer.number), {}))

    def logit_lens(self, logits: Tensor) -> None:
        """Add the rows of what each layer would predict."""
        if not self.layers:
            return
        targets = lens_targets(self.model, self.batch, logits)
        for layer, own in lens_logits(self.model, self.batch, self.layers, self.layer_outputs):
            self.add_layer(layer, lens_statistics(own, targets))

    def induction(self) -> None:
        """Add the induction scores of a causal decoder of texts."""
        if not is_causal_language_model(self.model):
            return
        for layer, scores in enumerate(induction_score(self.model).tolist()):
            for head, value in enumerate(scores):
                self.table.add("induction", "decoder", value, layer=layer, head=head)

    def positions(self) -> None:
        """Add the rows of positions."""
        PositionRows(self.table, self.model, self.batch, self.tokens, self.grids).add()
