"""Masked language modeling: some tokens are predicted, most of which are masked.

transformers' `DataCollatorForLanguageModeling` draws for a whole batch at once, so what it masks depends on the number
of processes and on the length of other rows; here each row is masked by its place alone.

Source: Devlin et al. 2019, BERT, §3.1 and appendix A.1, https://arxiv.org/abs/1810.04805
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, CachedTokenizer, cached_tokenizer, config_fields
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import most_frequent_token
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Example, Task

NEEDS = ("cls", "sep", "mask")
MASKED = 0.8  # of the predicted tokens; as many of the rest are replaced as are kept
WORDS = 8  # of the card's example


def masked_lm(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of a masked language model on a corpus, each text in pieces of at most `text.length` tokens.

    In training tokens are masked by the place of their row; in evaluated splits always the same ones are.
    """
    tokenize = cached_tokenizer(recipe, corpus.texts.get("train", []), ENCODER_TEMPLATE, NEEDS)
    length = recipe.text.length
    mask = Masking(tokenize.tokenizer, recipe.text.mask, recipe.seed)
    tables = {name: rows(tokenize, texts, length) for name, texts in corpus.texts.items()}
    train = tables.pop("train", Columns({}))
    splits = {name: mask.once(split) for name, split in tables.items()}
    baselines = partial(most_frequent_token, train, mask.special, splits)
    example = partial(prediction, tokenize.tokenizer, corpus)
    known: Any = {} if corpus.stream else {"baselines": baselines, "example": example}
    return Task(
        data=corpus,
        kind="fill-mask",
        train=corpus.stream(partial(stream_pieces, tokenize, length), None) if corpus.stream else train,
        splits=splits,
        processor=tokenize.tokenizer,
        score=score,
        reduce=reduce_masked,
        collate=mask.collate,
        config=config_fields(tokenize.tokenizer, max_position_embeddings=length),
        **known,
    )


def stream_pieces(tokenize: CachedTokenizer, length: int, texts: Sequence[str]) -> list[list[Record]]:
    """Return the examples of each text."""
    return [[{"input_ids": piece} for piece in pieces] for pieces in split_texts(tokenize, texts, length)]


def rows(tokenize: CachedTokenizer, texts: Sequence[str], length: int) -> Columns:
    """Return the pieces of all texts."""
    pieces = [piece for pieces_of_one in split_texts(tokenize, texts, length) for piece in pieces_of_one]
    return padded_columns({"input_ids": (pieces, tokenize.tokenizer.pad_token_id)})


def split_texts(tokenize: CachedTokenizer, texts: Sequence[str], length: int) -> list[list[np.ndarray]]:
    """Split each text into pieces of at most `length` tokens, each with the special tokens around it."""
    start, end, room = [tokenize.tokenizer.cls_token_id], [tokenize.tokenizer.sep_token_id], length - 2
    return [
        [np.concatenate((start, row[first : first + room], end)) for first in range(0, len(row), room)]
        for row in tokenize(texts, add_special_tokens=False)
    ]


def score(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """Return how many of the predicted tokens are right."""
    return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}


class Masking:
    """Chooses the tokens to predict, of which 80 % are masked, 10 % replaced by random tokens and 10 % kept."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, share: float, seed: int) -> None:
        self.share, self.seed, self.size = share, seed, len(tokenizer)
        self.mask, self.pad = tokenizer.mask_token_id, tokenizer.pad_token_id
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Make a batch of rows; in training each is masked by its place, else they are masked already."""
        batch = pad_with_mask(records, places, {"input_ids": self.pad})
        length = batch["input_ids"].shape[1]
        if places is None:
            return {**batch, "labels": batch["labels"][:, :length]}
        # Three numbers for each token in order: those of a row do not depend on the length of others.
        draws = [np.random.default_rng((self.seed, place)).random((length, 3)) for place in places]
        return {**batch, **self.apply(batch["input_ids"], torch.from_numpy(np.stack(draws)))}

    def once(self, split: Columns) -> Columns:
        """Mask a split for good, the same tokens whatever the seed."""
        inputs = split.columns["input_ids"]
        draws = torch.from_numpy(np.random.default_rng(0).random((*inputs.shape, 3)))
        return Columns(self.apply(inputs, draws), split.lengths)

    def apply(self, inputs: Tensor, draws: Tensor) -> Batch:
        """Mask inputs (B, T) by draws (B, T, 3) in [0, 1): which to predict, how to change them, and to what."""
        which, how, instead = draws.unbind(-1)
        chosen = (which < self.share) & ~torch.isin(inputs, self.special)
        masked, replaced = chosen & (how < MASKED), chosen & (how >= (1 + MASKED) / 2)
        other = (instead * self.size).long()
        other = other.masked_fill(torch.isin(other, self.special), self.mask)
        labels = inputs.masked_fill(~chosen, IGNORED)
        return {"input_ids": inputs.masked_fill(masked, self.mask).where(~replaced, other), "labels": labels}


def reduce_masked(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Return loss and accuracy by predicted token, and the perplexity."""
    by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
    return {**by_token, **measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])}


def prediction(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, model: Any) -> Example:
    """Return the first words of the test, the last of them masked, and the model's prediction."""
    words = corpus.texts["test"][0].split()[:WORDS]
    given = " ".join([*words[:-1], tokenizer.mask_token])
    inputs = tokenizer(given, return_tensors="pt").to(model.device)
    with torch.no_grad():
        logits = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id]
    return Example(given, {"token": int(logits[0].argmax())})
