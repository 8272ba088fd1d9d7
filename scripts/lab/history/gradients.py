"""Measure how much of an output's gradient reaches an input, by their distance.

Shapes: B batch, n letters of a source, D embedding width, V vocabulary.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from qkv.scripts.lab.history.models import FIRST, VOCABULARY, reversals

TEXTS = 4
Curve = list[list[float]]


def gradients_by_distance(models: Mapping[str, PreTrainedModel], length: int) -> dict[str, Curve]:
    """Measure for each model the gradient norm by distance, on sources of that length.

    The output is the letter at position t, the input the one that it repeats, at position n - 1 - t. A recurrence takes
    2 t + 1 steps between them: that is the distance, for all models. The loss is about random letters, so that a model
    which is certain of its letters has a gradient, too. In double precision, for single would underflow.
    """
    return {name: curve(deepcopy(model).double().eval(), length) for name, model in models.items()}


def curve(model: PreTrainedModel, length: int) -> Curve:
    """Measure distances and norms for one model, the mean of some texts."""
    random = torch.Generator().manual_seed(length)
    batch = reversals(TEXTS, length, random)
    targets = torch.randint(FIRST, VOCABULARY, (TEXTS, length), generator=random)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, labels=batch["labels"], use_cache=False).logits
    points = []
    for position in positions(length):
        loss = F.cross_entropy(logits[:, position], targets[:, position], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, embedded, retain_graph=True)  # (B, n + 1, D)
        points.append([2 * position + 1, float(gradient[:, length - 1 - position].norm(dim=-1).mean())])
    return points


def positions(length: int) -> list[int]:
    """Return positions of a text, dense at first: 0, 1, 2, 4, … and the last."""
    dense = [0] + [2**power for power in range(length.bit_length()) if 2**power < length - 1]
    return [*dense, length - 1] if length > 1 else dense
