"""Causal language modeling on packed rows of text, or on texts and the targets that follow them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.scripts.data.collate import IGNORED, pack, pad_batch, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.tokenization import byte_counts, config_fields, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Task, first, shorten

Tokens = NDArray[np.int64]
PROMPT_WORDS = 8  # of the card's example


class TextGeneration(Task):
    """Predict each next token that has a label."""

    kind = "text-generation"

    def count(self, batch: Batch) -> int:
        return int((batch["labels"][:, 1:] != IGNORED).sum())


class CausalLM(TextGeneration):
    """Predict every next token of a corpus.

    Documents, each with an end token, are packed into rows of `text.length` and do not attend to each other; bits per
    byte are over the bytes of all predicted tokens, which are all but the first of a document or a row.
    """

    needs = ["eos"]
    is_packed = True

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        self.corpus, self.length = corpus, recipe.text.length
        self.tokenizer = tokenizer = self.make_tokenizer(recipe)
        splits: dict[str, Any] = {name: self.rows(name) for name in corpus.texts}
        longest = max([self.length, *(split.columns["input_ids"].shape[1] for split in splits.values())])
        if corpus.stream:
            splits["train"] = corpus.stream(self.examples_of, self.length if self.is_packed else None)
        super().__init__(corpus, splits, tokenizer, config_fields(tokenizer, max_position_embeddings=longest))

    def make_tokenizer(self, recipe: Recipe) -> Any:
        """Return the tokenizer, trained on the training texts or loaded."""
        texts = [*self.corpus.texts.get("train", []), *self.corpus.targets.get("train", [])]
        return tokenizer_for(recipe, texts, needs=self.needs)

    def documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, and an end token."""
        return [[*row.tolist(), self.tokenizer.eos_token_id] for row in tokenize(self.tokenizer, texts)]

    def examples_of(self, texts: Sequence[str]) -> list[list[Record]]:
        """Return the example of each text of a stream."""
        return [[{"input_ids": document}] for document in self.documents(texts)]

    def rows(self, split: str) -> Columns:
        """Pack the documents of a split into rows, with the number of bytes that are predicted in each."""
        rows = Columns(stack(list(pack(self.documents(self.corpus.texts[split]), self.length))))
        counts = byte_counts(self.tokenizer)
        if counts is not None:
            labels = rows.columns["labels"]
            rows.columns["_bytes"] = torch.from_numpy(counts)[labels.clamp(min=0)].where(labels != IGNORED, 0).sum(1)
        return rows

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        return {"_bytes": batch["_bytes"].sum()} if "_bytes" in batch else {}

    def reduce(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """Return the loss, the perplexity by token, and bits per byte of a byte-level tokenizer."""
        metrics = measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])
        if sums.get("_bytes"):
            metrics |= measure(["bits_per_byte"], [sums["loss"]], [int(sums["_bytes"])])
        return {"loss": sums["loss"] / sums["targets"], **metrics}

    def prompt(self) -> str:
        return " ".join(super().prompt().split(" ")[:PROMPT_WORDS])


class ResponseLM(CausalLM):
    """Predict some tokens of each row alone, in training also of packed rows.

    `exact_match` is the share of evaluated rows with all of them right, which greedy decoding would generate.
    """

    def respond(self, rows: Sequence[tuple[Tokens, NDArray[np.bool_]]]) -> Columns:
        """Make padded rows of tokens, each with those that are predicted."""
        labels = [np.where(learned, ids, IGNORED) for ids, learned in rows]
        inputs = [ids for ids, _ in rows], self.tokenizer.pad_token_id
        return padded_columns({"input_ids": inputs, "labels": (labels, IGNORED)})

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        if "position_ids" in records[0]:
            return stack(records)
        batch = pad_batch(records, {"labels": IGNORED})
        return {**batch, "input_ids": batch["input_ids"][:, : batch["labels"].shape[1]]}

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        wanted = batch["labels"][:, 1:]
        due = wanted != IGNORED
        right = (outputs.logits[:, :-1].argmax(-1) == wanted) & due
        return {"accuracy": right.sum(), "_exact": (right == due).all(1).sum(), "_texts": torch.tensor(len(due))}

    def reduce(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """Return loss and accuracy by token, and exact matches by row."""
        by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
        return {**by_token, "exact_match": sums["_exact"] / sums["_texts"]}


class TargetLM(ResponseLM):
    """Write each target after its text; only the targets count."""

    needs = ["bos", "eos"]

    def rows(self, split: str) -> Columns:
        """Join each text, a start token, its target and an end token."""
        tokenizer = self.tokenizer
        prompts = [np.append(row, tokenizer.bos_token_id) for row in tokenize(tokenizer, self.corpus.texts[split])]
        answers = [np.append(row, tokenizer.eos_token_id) for row in tokenize(tokenizer, self.corpus.targets[split])]
        both = [np.concatenate(pair) for pair in zip(prompts, answers, strict=True)]
        return self.respond([(row, np.arange(len(row)) >= len(one)) for one, row in zip(prompts, both, strict=True)])

    def sample(self) -> dict[str, Any]:
        text = first(self.corpus.texts)
        return {"prompt": shorten(text) + self.tokenizer.bos_token} if text else {}
