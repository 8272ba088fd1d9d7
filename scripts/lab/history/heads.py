"""Measure which word single heads look at, in encoders that tag words of made sentences.

Shapes: B sentences, T words, L layers, H heads.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from qkv import QkvEncoderConfig, QkvEncoderForTokenClassification
from qkv.scripts.common.files import table
from qkv.scripts.lab.history.choices import Batch, Fields, train

TABLE: dict[str, Any] = table(__file__)
IDS = {word: number for number, word in enumerate(sorted(set(re.findall("[a-z]+", str(TABLE)))), start=1)}
CLASS_OF = {word: number for number, words in enumerate(TABLE["classes"].values()) for word in words}
Sentences = tuple[Batch, Tensor, Tensor]
# Sentences whose nouns have such a checksum are for tests.
EVERY = 5


def measure_heads(choice: Fields, amount: Fields, seed: int) -> dict[str, float]:
    """Train on all relations at once from a seed, and return the figures of each."""
    torch.manual_seed(seed)
    shape = {"vocab_size": len(IDS) + 1, "pad_token_id": 0, "num_labels": len(TABLE["classes"])}
    model = QkvEncoderForTokenClassification(QkvEncoderConfig(**TABLE["model"] | choice.get("model", {}) | shape))
    mixed = [frame for frames in TABLE["frames"].values() for frame in frames]
    train(model, lambda random: batch(mixed, amount["batch_size"], random)[0], amount["steps"], seed, TABLE["training"])
    random, found = torch.Generator().manual_seed(-1 - seed), {"parameters": float(model.num_parameters())}
    for name, frames in TABLE["frames"].items():
        figures = pointing(model.eval(), *batch(frames, amount["held_out"], random, held_out=True))
        found |= {f"{name}_{figure}": value for figure, value in figures.items()}
    return found | {"best_heads": len({value for figure, value in found.items() if figure.endswith("_head")})}


def sentence(frames: Sequence[str], random: torch.Generator, *, held_out: bool) -> list[str]:
    """Draw a sentence for training or for tests, which share no nouns in one order."""

    def pick(words: Sequence[str]) -> str:
        return words[int(torch.randint(len(words), (), generator=random))]

    while True:
        words = re.sub("[A-Z]+", lambda name: pick(TABLE["words"][name[0]]), pick(frames)).split()
        nouns = " ".join(word for word in words if word.strip("*") in CLASS_OF)
        if held_out == (crc32(nouns.encode()) % EVERY == 0):
            return words


def batch(frames: Sequence[str], count: int, random: torch.Generator, *, held_out: bool = False) -> Sentences:
    """Draw sentences; return them, the places of the words that are tagged, and of those that tell the tags: (B,)."""
    rows = [sentence(frames, random, held_out=held_out) for _ in range(count)]
    ids = pad_sequence([torch.tensor([IDS[word.strip("*?")] for word in row]) for row in rows], batch_first=True)
    asked, told = (torch.tensor([[word[-1] for word in row].index(mark) for row in rows]) for mark in "?*")
    tags = torch.tensor([CLASS_OF[row[place].strip("*")] for row, place in zip(rows, told, strict=True)])
    labels = torch.full_like(ids, -100).scatter(1, asked[:, None], tags[:, None])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}, asked, told


@torch.no_grad()
def pointing(model: torch.nn.Module, sentences: Batch, asked: Tensor, told: Tensor) -> dict[str, float]:
    """Return how often the best head of one half of the sentences has its largest weight on that word in the other.

    So often a place alone would be right at best, one of the sentence or a distance (`place`), and one drawn evenly
    (`chance`); `right` is the share of tags.
    """
    rows, half = torch.arange(len(asked)), len(asked) // 2
    output = model(**sentences, output_attentions=True)
    weights = torch.stack(output.attentions, 1)[rows, :, :, asked]  # (B, L, H, T)
    hits = (weights.argmax(-1) == told[:, None, None]).flatten(1).double()  # (B, L * H)
    best = int(hits[:half].mean(0).argmax())
    places = (Counter(place[half:].tolist()) for place in (told, asked - told))
    tagged = output.logits[rows, asked].argmax(-1) == sentences["labels"][rows, asked]
    return {
        "head": best, "share": float(hits[half:, best].mean()), "right": float(tagged.double().mean()),
        "place": max(count.most_common(1)[0][1] for count in places) / len(rows[half:]),
        "chance": float((1 / sentences["attention_mask"].sum(1)).mean()),
    }  # fmt: skip
