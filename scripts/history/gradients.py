"""How much of an output's gradient comes back to an input, by how far apart they are?

Shapes: B batch, n letters of a source, D embedding width, V vocabulary.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from qkv.scripts.history.contenders import FIRST, VOCABULARY, reversals

TEXTS = 4
Curve = list[list[float]]


def by_distance(models: Mapping[str, PreTrainedModel], length: int) -> dict[str, Curve]:
    """For each model the distance and the norm of the gradient over that distance, on texts of that length.

    The output is the letter at place t, the input the one that it repeats, at place n - 1 - t. From the one to the
    other a recurrence takes 2 t + 1 steps: that is the distance, for all models. The loss is about letters drawn at
    random, so that a model which is certain of its letters has a gradient, too. In double precision, where single
    would say nothing.
    """
    return {name: curve(deepcopy(model).double().eval(), length) for name, model in models.items()}


def curve(model: PreTrainedModel, length: int) -> Curve:
    """Distances and norms for one model, the mean of some texts."""
    random = torch.Generator().manual_seed(length)
    batch = reversals(TEXTS, length, random)
    wanted = torch.randint(FIRST, VOCABULARY, (TEXTS, length), generator=random)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, labels=batch["labels"], use_cache=False).logits
    found = []
    for place in places(length):
        loss = F.cross_entropy(logits[:, place], wanted[:, place], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, embedded, retain_graph=True)  # (B, n + 1, D)
        found.append([2 * place + 1, float(gradient[:, length - 1 - place].norm(dim=-1).mean())])
    return found


def places(length: int) -> list[int]:
    """Places of a text, dense at first: 0, 1, 2, 4, … and the last."""
    found = [0] + [2**power for power in range(length.bit_length()) if 2**power < length - 1]
    return [*found, length - 1] if length > 1 else found
