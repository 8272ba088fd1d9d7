"""Masked language modeling: some tokens are predicted, and most of them masked.

transformers' `DataCollatorForLanguageModeling` draws for a whole batch at once, so what it masks depends on the number
of processes and on the length of other rows; here each row is masked by its place alone.

Source: Devlin et al. 2019, BERT, §3.1 and appendix A.1, https://arxiv.org/abs/1810.04805
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.scripts.data.collate import IGNORED, pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, config_fields, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Task

NEEDS = ("cls", "sep", "mask")
MASKED = 0.8  # of the predicted tokens; as many of the rest are replaced as are kept
WORDS = 8  # of the card's example


class TokenPrediction(Task):
    """Predict single tokens, those that have labels, where the logits of the labels stand."""

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}

    def reduce(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """Return loss and accuracy by predicted token, and the perplexity."""
        return super().reduce(sums, answers) | measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])


class MaskedLM(TokenPrediction):
    """Predict masked tokens of a corpus, each text in pieces of at most `text.length` tokens.

    Of the predicted tokens 80 % are masked, 10 % replaced by random tokens and 10 % kept. In training they follow from
    the place of their row; in evaluated splits they never change.
    """

    kind = "fill-mask"

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        self.corpus, self.length, self.share, self.seed = corpus, recipe.text.length, recipe.text.mask, recipe.seed
        self.tokenizer = tokenizer_for(recipe, corpus.texts.get("train", []), ENCODER_TEMPLATE, NEEDS)
        self.special = torch.tensor(sorted(self.tokenizer.all_special_ids))
        splits: dict[str, Any] = {}
        for name, texts in corpus.texts.items():
            pieces = [piece for pieces in self.split_texts(texts) for piece in pieces]
            rows = padded_columns({"input_ids": (pieces, self.tokenizer.pad_token_id)})
            splits[name] = rows if name == "train" else self.mask_once(rows)
        if corpus.stream:
            splits["train"] = corpus.stream(self.examples_of, None)
        config = config_fields(
            self.tokenizer, max_position_embeddings=self.length, mask_token_id=self.tokenizer.mask_token_id
        )
        super().__init__(corpus, splits, self.tokenizer, config)

    def split_texts(self, texts: Sequence[str]) -> list[list[np.ndarray]]:
        """Split each text into pieces of at most `length` tokens, each with the special tokens around it."""
        start, end, room = [self.tokenizer.cls_token_id], [self.tokenizer.sep_token_id], self.length - 2
        return [
            [np.concatenate((start, row[first : first + room], end)) for first in range(0, len(row), room)]
            for row in tokenize(self.tokenizer, texts, add_special_tokens=False)
        ]

    def examples_of(self, texts: Sequence[str]) -> list[list[Record]]:
        """Return the examples of each text of a stream."""
        return [[{"input_ids": piece} for piece in pieces] for pieces in self.split_texts(texts)]

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        batch = pad_with_mask(records, {"input_ids": self.tokenizer.pad_token_id})
        length = batch["input_ids"].shape[1]
        if places is None:
            return {**batch, "labels": batch["labels"][:, :length]}
        # Three numbers for each token in order, so that a row's numbers do not depend on the length of other rows.
        draws = [np.random.default_rng((self.seed, place)).random((length, 3)) for place in places]
        return {**batch, **self.mask(batch["input_ids"], torch.from_numpy(np.stack(draws)))}

    def mask_once(self, split: Columns) -> Columns:
        """Mask a split once, the same tokens for any seed."""
        inputs = split.columns["input_ids"]
        draws = torch.from_numpy(np.random.default_rng(0).random((*inputs.shape, 3)))
        return Columns(self.mask(inputs, draws), split.lengths)

    def mask(self, inputs: Tensor, draws: Tensor) -> Batch:
        """Mask inputs (B, T) by draws (B, T, 3) in [0, 1): the predicted tokens, their change and replacement."""
        which, how, instead = draws.unbind(-1)
        chosen = (which < self.share) & ~torch.isin(inputs, self.special)
        masked, replaced = chosen & (how < MASKED), chosen & (how >= (1 + MASKED) / 2)
        other = (instead * len(self.tokenizer)).long()
        other = other.masked_fill(torch.isin(other, self.special), self.tokenizer.mask_token_id)
        labels = inputs.masked_fill(~chosen, IGNORED)
        changed = inputs.masked_fill(masked, self.tokenizer.mask_token_id).where(~replaced, other)
        return {"input_ids": changed, "labels": labels}

    def prompt(self) -> str:
        words = super().prompt().replace("{", "{{").replace("}", "}}").split()[:WORDS]
        return " ".join([*words[:-1], "{mask}"]) if words else ""
