"""The grids that models of pairs attend in: of pairs of residues, of which one row is shown, and of an alignment."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.attention.layers import Layers, attention_layers


def shown_layers(reading: Any, layers: Layers) -> Layers:
    """Return the layers that are shown; with a residue, those in which its pairs attend to each other, too."""
    stacks = {layer.stack: layer.is_of_tokens for layer in attention_layers(reading.model)}
    if reading.residue is not None:
        check_residue(reading, stacks)
        return layers if isinstance(layers, Mapping) else dict.fromkeys(stacks, layers)
    for stack in layers if isinstance(layers, Mapping) else ():
        if not stacks.get(stack, True):
            raise ValueError(f"layers names {stack!r}, which is shown of one residue; name it by residue=")
    return layers


def check_residue(reading: Any, stacks: Mapping[str, bool]) -> None:
    """Raise ValueError where a model has no pairs, or a chain not that residue."""
    if all(stacks.values()):
        name = type(reading.model).__name__
        raise ValueError(f"residue={reading.residue} is for attention of pairs, and {name} has none; leave it out")
    length, mask = residues_of(reading.inputs), reading.inputs.get("attention_mask")
    length = length if mask is None else int(mask[reading.row].sum())
    if reading.residue not in range(length):
        raise ValueError(f"residue={reading.residue}, but the chain has {length}; name one from 0 to {length - 1}")


def residues_of(inputs: Mapping[str, Any]) -> int:
    """Return how many residues the chains of a batch have, with padding."""
    chains = inputs.get("input_ids")
    return int((inputs["inputs_embeds"] if chains is None else chains).shape[1])


def sequences_mask(inputs: Mapping[str, Any]) -> Tensor | None:
    """Return which sequences of alignments are real, the chain first: (B, 1 + S), None where all are."""
    mask = inputs.get("msa_attention_mask")
    return None if mask is None else torch.cat((torch.ones_like(mask[:, :1]), mask), dim=1)
