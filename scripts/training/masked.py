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

from qkv.scripts.training.baselines import most_frequent_token
from qkv.scripts.training.corpus import Corpus
from qkv.scripts.training.metrics import measure
from qkv.scripts.training.outside import streamed
from qkv.scripts.training.padded import IGNORED, cut, padded, pieces
from qkv.scripts.training.recipe import Recipe
from qkv.scripts.training.task import Answer, Batch, Columns, Example, Record, Task
from qkv.scripts.training.tokenizer import AROUND, fields, ids, tokenizer_for

# Of the tokens that are asked for, this share is hidden, and as many of the rest are replaced as are left alone.
HIDDEN = 0.8
# Words of the text that shows a pipeline at work.
WORDS = 8


def masked(recipe: Recipe, corpus: Corpus) -> Task:
    """A masked language model's task on a corpus, each text in pieces of at most `text.length` tokens.

    In training tokens are hidden by the place of their row; evaluated splits hide the same ones every time.
    """
    tokenizer = tokenizer_for(recipe, corpus.texts["train"], AROUND)
    mask = Mask(tokenizer, recipe.text.mask, recipe.seed)
    splits = {name: rows(corpus.texts[name], tokenizer, recipe.text.length) for name in corpus.texts}
    train = splits.pop("train")
    held = {name: Mask(tokenizer, recipe.text.mask, 0).once(split) for name, split in splits.items()}
    return Task(
        name=corpus.name,
        title=corpus.title,
        kind="fill-mask",
        source=corpus.source,
        train=train,
        splits=held,
        labels=[],
        processor=tokenizer,
        count=hidden,
        score=right,
        measure=measured,
        collate=mask.collate,
        config={**fields(tokenizer), "max_position_embeddings": recipe.text.length},
        baselines=partial(most_frequent_token, train, mask.special, held),
        example=partial(guessed, tokenizer, corpus.texts["test"][0]),
    )


def streamed_masked(recipe: Recipe) -> Task:
    """A masked language model's task on texts that are read as they are needed."""
    tokenizer = tokenizer_for(recipe, [])
    length, mask = recipe.text.length, Mask(tokenizer, recipe.text.mask, recipe.seed)

    def prepare(texts: Sequence[str], targets: Sequence[str]) -> list[list[Record]]:
        return [[{"input_ids": row} for row in found] for found in framed(texts, tokenizer, length)]

    stream, corpus = streamed(recipe, prepare)
    held = {name: Mask(tokenizer, recipe.text.mask, 0).once(rows(found, tokenizer, length))
            for name, found in corpus.texts.items()}  # fmt: skip
    return Task(
        name=corpus.name,
        title=corpus.title,
        kind="fill-mask",
        source=corpus.source,
        train=stream,
        complaints=stream.complaints,
        splits=held,
        labels=[],
        processor=tokenizer,
        count=hidden,
        score=right,
        measure=measured,
        collate=lambda records, places: mask.collate(filled(records, mask.pad, length), places),
        config={**fields(tokenizer), "max_position_embeddings": length},
    )


def filled(records: Sequence[Record], pad: int, length: int) -> list[Record]:
    """Records of rows, each filled up to one length."""
    return [
        record if len(record["input_ids"]) == length or "labels" in record
        else {"input_ids": np.pad(record["input_ids"], (0, length - len(record["input_ids"])), constant_values=pad)}
        for record in records
    ]  # fmt: skip


def framed(texts: Sequence[str], tokenizer: PreTrainedTokenizerFast, length: int) -> list[list[np.ndarray]]:
    """The pieces of each text, every one with the special tokens around it."""
    start, end = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    found = ids(tokenizer, texts, add_special_tokens=False)
    return [[np.concatenate((start, part, end)).astype(np.int64) for part in pieces(row, length - 2)] for row in found]


def hidden(batch: Batch) -> int:
    """How many tokens are asked for."""
    return int((batch["labels"] != IGNORED).sum())


def right(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """How many of them are guessed."""
    return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}


def rows(texts: Sequence[str], tokenizer: PreTrainedTokenizerFast, length: int) -> Columns:
    """The pieces of all texts as a table."""
    found = [part for parts in framed(texts, tokenizer, length) for part in parts]
    return padded({"input_ids": (found, tokenizer.pad_token_id)})


class Mask:
    """Which tokens are asked for, and what stands in their place: 80 % hidden, 10 % another token, 10 % the same."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, share: float, seed: int) -> None:
        self.share, self.seed, self.size = share, seed, len(tokenizer)
        self.hidden, self.pad = tokenizer.mask_token_id, tokenizer.pad_token_id
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """A batch of rows; in training each is hidden from by its place, else they are as they come."""
        full = len(records[0]["input_ids"])
        batch = cut(records, {"input_ids": self.pad})
        length = batch["input_ids"].shape[1]
        if places is not None:
            # As many numbers for a row as it could have tokens: which ones it gets must not depend on its neighbours.
            draws = [np.random.default_rng((self.seed, place)).random((3, full))[:, :length] for place in places]
            batch |= self.hide(batch["input_ids"], torch.from_numpy(np.stack(draws, axis=1)))
        labels = batch["labels"][:, :length]
        return {**batch, "labels": labels, "attention_mask": (batch["input_ids"] != self.pad).long()}

    def once(self, split: Columns) -> Columns:
        """A split from which the same tokens are hidden for good."""
        inputs = split.columns["input_ids"]
        draws = torch.from_numpy(np.random.default_rng(self.seed).random((3, *inputs.shape)))
        return Columns(self.hide(inputs, draws), split.lengths)

    def hide(self, inputs: Tensor, draws: Tensor) -> Batch:
        """Inputs (B, T) with tokens hidden as draws (3, B, T) in [0, 1) decide: which, how, and what instead."""
        asked = (draws[0] < self.share) & ~torch.isin(inputs, self.special)
        labels = inputs.masked_fill(~asked, IGNORED)
        hidden = asked & (draws[1] < HIDDEN)
        replaced = asked & (draws[1] >= (1 + HIDDEN) / 2)
        other = (draws[2] * self.size).long()
        other = other.masked_fill(torch.isin(other, self.special), self.hidden)
        return {"input_ids": inputs.masked_fill(hidden, self.hidden).where(~replaced, other), "labels": labels}


def measured(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss and accuracy by hidden token, and perplexity."""
    by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
    return {**by_token, **measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])}


def guessed(tokenizer: PreTrainedTokenizerFast, text: str, model: Any) -> Example:
    """A text with one word hidden, and the model's first guess."""
    words = text.split()[:WORDS]
    given = " ".join([*words[:-1], tokenizer.mask_token])
    inputs = tokenizer(given, return_tensors="pt").to(model.device)
    with torch.no_grad():
        logits = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id]
    return Example(given, {"token": int(logits[0].argmax())})
