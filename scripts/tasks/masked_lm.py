"""What stood there? Masked language modeling: some tokens are asked for, most of them hidden.

Source: Devlin et al. 2019, BERT, §3.1 and appendix A.1, https://arxiv.org/abs/1810.04805
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, attended, padded, pieces
from qkv.scripts.data.corpus import Corpus, task_of
from qkv.scripts.data.text_columns import streamed
from qkv.scripts.data.tokenization import AROUND, tokenizer_for
from qkv.scripts.data.tokens import Encoder
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import most_frequent_token
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Batch, Columns, Example, Record, Task

KIND = "fill-mask"
# The special tokens around a text, and that for a hidden one.
FRAME = ("cls", "sep", "mask")
# Of the tokens that are asked for, this share is hidden, and as many of the rest are replaced as are left alone.
HIDDEN = 0.8
# Words of the text that shows a pipeline at work.
WORDS = 8


def masked(recipe: Recipe, corpus: Corpus) -> Task:
    """A masked language model's task on a corpus, each text in pieces of at most `text.length` tokens.

    In training tokens are hidden by the place of their row; evaluated splits hide the same ones every time.
    """
    tokenizer = tokenizer_for(recipe, corpus.texts["train"], AROUND, FRAME)
    encoder, mask = Encoder(tokenizer, recipe.workers), Mask(tokenizer, recipe.text.mask, recipe.seed)
    tables = {name: rows(encoder, texts, recipe.text.length) for name, texts in corpus.texts.items()}
    train = tables.pop("train")
    splits = {name: mask.once(split) for name, split in tables.items()}
    shown = {
        "baselines": partial(most_frequent_token, train, mask.special, splits),
        "example": partial(guessed, tokenizer, corpus.texts["test"][0]),
    }
    masking = {"collate": mask.collate, **ASKED}
    return task_of(corpus, tokenizer, KIND, recipe.text.length, train=train, splits=splits, **shown, **masking)


def streamed_masked(recipe: Recipe) -> Task:
    """A masked language model's task on texts that are read as they are needed."""
    tokenizer = tokenizer_for(recipe, [], needs=FRAME)
    encoder, mask = Encoder(tokenizer), Mask(tokenizer, recipe.text.mask, recipe.seed)
    length = recipe.text.length

    def prepare(texts: Sequence[str], targets: Sequence[str]) -> list[list[Record]]:
        return [[{"input_ids": piece} for piece in found] for found in framed(encoder, texts, length)]

    stream, corpus = streamed(recipe, prepare)
    splits = {name: mask.once(rows(encoder, texts, length)) for name, texts in corpus.texts.items()}
    held = {"splits": splits, "complaints": stream.complaints}
    return task_of(corpus, tokenizer, KIND, length, train=stream, collate=mask.collate, **held, **ASKED)


def rows(encoder: Encoder, texts: Sequence[str], length: int) -> Columns:
    """The pieces of all texts as a table."""
    found = [piece for pieces_of_one in framed(encoder, texts, length) for piece in pieces_of_one]
    return padded({"input_ids": (found, encoder.tokenizer.pad_token_id)})


def framed(encoder: Encoder, texts: Sequence[str], length: int) -> list[list[np.ndarray]]:
    """The pieces of each text, every one with the special tokens around it."""
    start, end = [encoder.tokenizer.cls_token_id], [encoder.tokenizer.sep_token_id]
    found = encoder(texts, add_special_tokens=False)
    return [[np.concatenate((start, piece, end)) for piece in pieces(row, length - 2)] for row in found]


def asked(batch: Batch) -> int:
    """How many tokens are asked for."""
    return int((batch["labels"] != IGNORED).sum())


def right(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """How many of them are guessed."""
    return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}


class Mask:
    """Which tokens are asked for, and what stands in their place: 80 % hidden, 10 % another token, 10 % the same."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, share: float, seed: int) -> None:
        self.share, self.seed, self.size = share, seed, len(tokenizer)
        self.hidden, self.pad = tokenizer.mask_token_id, tokenizer.pad_token_id
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """A batch of rows; in training each is hidden from by its place, else they are as they come."""
        batch = attended(records, places, {"input_ids": self.pad})
        length = batch["input_ids"].shape[1]
        if places is None:
            return {**batch, "labels": batch["labels"][:, :length]}
        # Three numbers a token, one token after the other: which a row gets does not depend on its neighbours' length.
        draws = [np.random.default_rng((self.seed, place)).random((length, 3)) for place in places]
        return {**batch, **self.hide(batch["input_ids"], torch.from_numpy(np.stack(draws)))}

    def once(self, split: Columns) -> Columns:
        """A split from which the same tokens are hidden for good, whatever the seed."""
        inputs = split.columns["input_ids"]
        draws = torch.from_numpy(np.random.default_rng(0).random((*inputs.shape, 3)))
        return Columns(self.hide(inputs, draws), split.lengths)

    def hide(self, inputs: Tensor, draws: Tensor) -> Batch:
        """Inputs (B, T) with tokens hidden as draws (B, T, 3) in [0, 1) decide: which, how, and what instead."""
        which, how, instead = draws.unbind(-1)
        chosen = (which < self.share) & ~torch.isin(inputs, self.special)
        hidden, replaced = chosen & (how < HIDDEN), chosen & (how >= (1 + HIDDEN) / 2)
        other = (instead * self.size).long()
        other = other.masked_fill(torch.isin(other, self.special), self.hidden)
        labels = inputs.masked_fill(~chosen, IGNORED)
        return {"input_ids": inputs.masked_fill(hidden, self.hidden).where(~replaced, other), "labels": labels}


def measured(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss and accuracy by hidden token, and perplexity."""
    by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
    return {**by_token, **measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])}


# What is asked of a model, whether its texts are in a table or a stream.
ASKED = {"count": asked, "score": right, "measure": measured}


def guessed(tokenizer: PreTrainedTokenizerFast, text: str, model: Any) -> Example:
    """A text with one word hidden, and the model's first guess."""
    words = text.split()[:WORDS]
    given = " ".join([*words[:-1], tokenizer.mask_token])
    inputs = tokenizer(given, return_tensors="pt").to(model.device)
    with torch.no_grad():
        logits = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id]
    return Example(given, {"token": int(logits[0].argmax())})
