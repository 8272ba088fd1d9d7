"""Measure design choices of the Transformer: small decoders of bytes on the same texts, for as many steps.

Shapes: B texts, T bytes, D hidden_size, L layers, H heads.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, get_scheduler

from qkv import QkvDecoderConfig, QkvDecoderForCausalLM
from qkv.modeling.layer import Layer
from qkv.scripts.common.files import table
from qkv.scripts.example_data.documentation import library
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.loop import parameter_groups

TABLE: dict[str, Any] = table(__file__)
Fields = Mapping[str, Any]
Batch = dict[str, Tensor]


def train(model: PreTrainedModel, draw: Callable[[torch.Generator], Batch], steps: int, seed: int, how: Fields) -> None:
    """Train on batches that the seed alone decides, `how` the table says, with a cosine after the warm-up."""
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(parameter_groups(model.train(), 0.01), lr=how["learning_rate"], fused=True)
    schedule = get_scheduler("cosine", optimizer, how["warmup"], steps)
    for _ in range(steps):
        model(**draw(random)).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), how["clip"])
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


class BatchNorm(nn.BatchNorm1d):
    """Centre and scale each component over all bytes of a batch: (B, T, D) -> (B, T, D)."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden.flatten(0, 1)).view_as(hidden)


def build(choice: Fields) -> PreTrainedModel:
    """Build a decoder, which never computes padding; what is taken out of it has no field in the config."""
    model = QkvDecoderForCausalLM(QkvDecoderConfig(**TABLE["model"] | choice.get("model", {}), pad_token_id=0))
    model.remove_padding = True
    for module in list(model.modules()):
        if isinstance(module, Layer) and choice.get("without") == "feed-forward":
            module.mlp = module.mlp_residual.norm = nn.Identity()
            module.mlp_residual.forward = lambda hidden, branch: hidden  # type: ignore[method-assign]
        for name, child in module.named_children():
            if isinstance(child, nn.LayerNorm) and choice.get("norm") == "batch":
                setattr(module, name, BatchNorm(*child.normalized_shape))
    return model


@cache
def texts(longest: int) -> dict[str, list[bytes]]:
    """Return how paragraphs of Python's docstrings begin, by split; they have various lengths."""
    whole = {split: "\n\n".join(documents).split("\n\n") for split, documents in library(load("docs-lm")).texts.items()}
    rows = {split: dict.fromkeys(text.encode()[:longest] for text in own if text[1:]) for split, own in whole.items()}
    return {"train": list(rows["train"]), "test": [row for row in rows["test"] if row not in rows["train"]]}


def collate(rows: Sequence[bytes]) -> Batch:
    """Pad texts to the longest: `input_ids`, `attention_mask`, `labels` (B, T)."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(list(row)) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


def measure_choice(choice: Fields, amount: Fields, seed: int) -> dict[str, float]:
    """Train a choice from a seed, and return its figures, those before training with `_start`."""
    torch.manual_seed(seed)
    model, rows, data = build(choice), amount["batch_size"], texts(amount["longest"])
    began = time.process_time()
    known, held = data["train"][: choice.get("texts")], data["test"][: amount["held_out"]]
    projections = [own for name, own in model.named_parameters() if "q_proj" in name or "k_proj" in name]
    gradient = nn.utils.get_total_norm(torch.autograd.grad(model.eval()(**collate(held)).loss, projections))
    before = attention(model, collate(held)) | {"query_gradient": float(gradient)}

    def draw(random: torch.Generator) -> Batch:
        return collate([known[n] for n in torch.randint(len(known), (rows,), generator=random)])

    train(model, draw, amount["steps"], seed, TABLE["training"] | choice.get("training", {}))
    found = {"cpu_s": time.process_time() - began, "parameters": model.num_parameters()}
    found |= attention(model, collate(held)) | evaluate(model.eval(), held, rows)
    found["training_loss"] = evaluate(model, known[: len(held)], rows)["loss"]
    # A norm over a batch has other statistics in training, and others again of single texts.
    for name, batch_size in {"batch_loss": rows, "alone_loss": 1}.items():
        found[name] = evaluate(model.train(), held, batch_size)["loss"]
    return found | {f"{name}_start": value for name, value in before.items()}


@torch.no_grad()
def evaluate(model: PreTrainedModel, rows: Sequence[bytes], batch_size: int) -> dict[str, float]:
    """Return the nats of a byte, and the share of bytes that are the likeliest."""
    batches = [collate(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)]
    logits = [model(one["input_ids"], attention_mask=one["attention_mask"]).logits[:, :-1] for one in batches]
    scores = torch.cat([one.flatten(0, 1) for one in logits])
    right = torch.cat([one["labels"][:, 1:].flatten() for one in batches])
    share = (scores.argmax(-1) == right)[right >= 0].double().mean()
    return {"loss": float(F.cross_entropy(scores, right)), "right": float(share)}


@torch.no_grad()
def attention(model: PreTrainedModel, batch: Batch) -> dict[str, float]:
    """Measure attention weights of bytes that have a choice, behind the first: means over bytes, heads and layers.

    `entropy` and `slope`, the mean derivative of a weight by its score, are over those of even weights; `previous` is
    the share of bytes at which the head that does so most has its largest weight on the byte before.
    """
    weights = torch.stack(model.eval()(**batch, output_attentions=True).attentions)[..., 1:, :]  # (L, B, H, T - 1, T)
    real = batch["attention_mask"][:, 1:].bool()  # (B, T - 1)
    rows = weights.transpose(2, 3)[:, real]  # (L, N, H, T)
    visible = torch.arange(2, weights.shape[-1] + 1).expand_as(real)[real][:, None]  # (N, 1)
    entropy = torch.special.entr(rows).sum(-1) / visible.log()
    slope = (1 - rows.square().sum(-1)) / (1 - 1 / visible)
    previous = (rows.argmax(-1) == visible - 2).double().mean(1)
    return {"entropy": float(entropy.mean()), "slope": float(slope.mean()), "previous": float(previous.max())}
