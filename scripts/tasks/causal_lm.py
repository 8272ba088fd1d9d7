"""Causal language modeling on packed rows of text, or on texts and the targets that follow them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, pack, pad_batch, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.tokenization import CachedTokenizer, byte_counts, cached_tokenizer, config_fields
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import byte_ngram
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Example, Task

KIND = "text-generation"
PROMPT_WORDS, NEW_TOKENS = 8, 12  # of the card's example


def causal_lm(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of a causal language model on a corpus.

    Documents, each with an end token, are packed into rows of `text.length` and do not attend to each other; bits per
    byte are over the bytes of all predicted tokens, which are all but the first of a document or a row. Of texts with
    targets only the targets count, and `exact_match` is the share whose every token is predicted: those that greedy
    decoding would generate.
    """
    if corpus.targets:
        return targets_task(recipe, corpus)
    tokenize, length = cached_tokenizer(recipe, corpus.texts.get("train", []), needs=["eos"]), recipe.text.length
    splits: dict[str, Any] = {name: packed_rows(tokenize, texts, length) for name, texts in corpus.texts.items()}
    example = partial(continuation, tokenize.tokenizer, corpus)
    known: Any = {} if corpus.stream else {"baselines": partial(byte_ngram, corpus), "example": example}
    return Task(
        data=corpus,
        kind=KIND,
        train=corpus.stream(partial(stream_documents, tokenize), length) if corpus.stream else splits.pop("train"),
        splits=splits,
        processor=tokenize.tokenizer,
        count=count_targets,
        score=lambda outputs, batch: {"_bytes": batch["_bytes"].sum()} if "_bytes" in batch else {},
        reduce=reduce_rows,
        config=config_fields(tokenize.tokenizer, max_position_embeddings=length),
        **known,
    )


def targets_task(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of writing each target after its text."""
    tokenize = cached_tokenizer(recipe, corpus.texts["train"] + corpus.targets["train"], needs=["bos", "eos"])
    splits = {name: texts_with_targets(tokenize, texts, corpus.targets[name]) for name, texts in corpus.texts.items()}
    longest = max(split.columns["input_ids"].shape[1] for split in splits.values())
    return Task(
        data=corpus,
        kind=KIND,
        train=splits.pop("train"),
        splits=splits,
        processor=tokenize.tokenizer,
        count=count_targets,
        score=score_targets,
        reduce=reduce_targets,
        collate=collate,
        config=config_fields(tokenize.tokenizer, max_position_embeddings=max(recipe.text.length, longest)),
        example=partial(continuation, tokenize.tokenizer, corpus),
    )


def documents(tokenize: CachedTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of each text, and an end token."""
    end = tokenize.tokenizer.eos_token_id
    return [[*row.tolist(), end] for row in tokenize(texts)]


def stream_documents(tokenize: CachedTokenizer, texts: Sequence[str]) -> list[list[Record]]:
    """Return the example of each text."""
    return [[{"input_ids": document}] for document in documents(tokenize, texts)]


def packed_rows(tokenize: CachedTokenizer, texts: Sequence[str], length: int) -> Columns:
    """Pack documents into rows, with the number of bytes that are predicted in each."""
    rows = Columns(stack(list(pack(documents(tokenize, texts), length))))
    counts = byte_counts(tokenize.tokenizer)
    if counts is not None:
        labels = rows.columns["labels"]
        rows.columns["_bytes"] = torch.from_numpy(counts)[labels.clamp(min=0)].where(labels != IGNORED, 0).sum(1)
    return rows


def texts_with_targets(tokenize: CachedTokenizer, texts: Sequence[str], targets: Sequence[str]) -> Columns:
    """Join each text, a start token, its target and an end token."""
    start, end = tokenize.tokenizer.bos_token_id, tokenize.tokenizer.eos_token_id
    prompts = [np.append(row, start) for row in tokenize(texts)]
    answers = [np.append(row, end) for row in tokenize(targets)]
    both = [np.concatenate(pair) for pair in zip(prompts, answers, strict=True)]
    labels = [np.append(np.full(len(one), IGNORED), other) for one, other in zip(prompts, answers, strict=True)]
    return padded_columns({"input_ids": (both, tokenize.tokenizer.pad_token_id), "labels": (labels, IGNORED)})


def count_targets(batch: Batch) -> int:
    """Return how many tokens are to be predicted."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def collate(records: Sequence[Record], places: Sequence[int] | None) -> Batch:
    """Make a batch, padded on the right, where a causal model's other tokens do not see it."""
    batch = pad_batch(records, {"labels": IGNORED})
    return {**batch, "input_ids": batch["input_ids"][:, : batch["labels"].shape[1]]}


def score_targets(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """Return the number of right tokens, and of targets of which all are right."""
    wanted = batch["labels"][:, 1:]
    due = wanted != IGNORED
    right = (outputs.logits[:, :-1].argmax(-1) == wanted) & due
    return {"accuracy": right.sum(), "_exact": (right == due).all(1).sum(), "_texts": torch.tensor(len(due))}


def reduce_rows(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Return the loss, the perplexity by token, and bits per byte of a byte-level tokenizer."""
    metrics = measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])
    if sums.get("_bytes"):
        metrics |= measure(["bits_per_byte"], [sums["loss"]], [int(sums["_bytes"])])
    return {"loss": sums["loss"] / sums["targets"], **metrics}


def reduce_targets(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Return loss and accuracy by token, and exact matches by text."""
    by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
    return {**by_token, "exact_match": sums["_exact"] / sums["_texts"]}


def continuation(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, model: Any) -> Example:
    """Return the first words of the test, and the model's greedy continuation."""
    room = tokenizer.model_max_length
    prompt = " ".join(corpus.texts["test"][0].split(" ")[:PROMPT_WORDS])[: room // 4]
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    options = {"max_new_tokens": min(NEW_TOKENS, room - inputs["input_ids"].shape[1]), "do_sample": False}
    with torch.no_grad():
        tokens = model.generate(**inputs, **options)[0, inputs["input_ids"].shape[1] :]
    return Example(
        prompt, {"generated_text": prompt + str(tokenizer.decode(tokens, skip_special_tokens=True))}, options
    )
