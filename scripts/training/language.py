"""What comes next? Causal language modeling on rows of text, or on texts and what is to be written after them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from qkv.scripts.training.baselines import byte_model
from qkv.scripts.training.corpus import Corpus
from qkv.scripts.training.metrics import measure
from qkv.scripts.training.outside import streamed
from qkv.scripts.training.padded import IGNORED, cut, padded, pieces
from qkv.scripts.training.recipe import Recipe
from qkv.scripts.training.task import Answer, Batch, Columns, Example, Record, Task, stack
from qkv.scripts.training.tokenizer import byte_counts, fields, ids, tokenizer_for

# Words of a test document that a pipeline goes on from, and tokens that it writes.
PROMPT, WRITTEN = 8, 12


def language(recipe: Recipe, corpus: Corpus) -> Task:
    """A causal language model's task on a corpus.

    Documents follow one another, each ended by a token, in rows of `text.length`; bits per byte are over the bytes of
    all tokens that are predicted, which is all but the first of a row. Of texts with targets only the targets count,
    and `exact_match` says how many are right to the last token: those that greedy decoding would write.
    """
    written = bool(corpus.targets)
    everything = corpus.texts["train"] + corpus.targets.get("train", [])
    tokenizer = tokenizer_for(recipe, everything)
    splits = {name: targets(corpus, name, tokenizer) if written else rows(corpus, name, tokenizer, recipe.text.length)
              for name in corpus.texts}  # fmt: skip
    return Task(
        name=corpus.name,
        title=corpus.title,
        kind="text-generation",
        labels=[],
        source=corpus.source,
        train=splits.pop("train"),
        splits=splits,
        processor=tokenizer,
        count=targeted,
        score=score_targets if written else score_text,
        measure=measure_targets if written else measure_text,
        collate=collate,
        config={**fields(tokenizer), "max_position_embeddings": longest(splits, recipe.text.length)},
        baselines=dict if written else partial(byte_model, corpus),
        example=partial(continued, tokenizer, corpus.texts["test"][0]),
    )


def streamed_language(recipe: Recipe) -> Task:
    """A causal language model's task on texts that are read as they are needed, packed into rows."""
    tokenizer = tokenizer_for(recipe, [])
    end = np.array([tokenizer.eos_token_id])

    def prepare(texts: Sequence[str], targets: Sequence[str]) -> list[list[Record]]:
        return [[{"input_ids": np.append(row, end).tolist()}] for row in ids(tokenizer, texts)]

    stream, corpus = streamed(recipe, prepare, recipe.text.length)
    return Task(
        name=corpus.name,
        title=corpus.title,
        kind="text-generation",
        labels=[],
        source=corpus.source,
        train=stream,
        complaints=stream.complaints,
        splits={name: rows(corpus, name, tokenizer, recipe.text.length) for name in corpus.texts},
        processor=tokenizer,
        count=targeted,
        score=score_text,
        measure=measure_text,
        collate=lambda records, places: stack(records) if places is not None else collate(records, places),
        config={**fields(tokenizer), "max_position_embeddings": recipe.text.length},
    )


def targeted(batch: Batch) -> int:
    """How many tokens are to be predicted."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def longest(splits: dict[str, Columns], length: int) -> int:
    """Positions that a model needs: those of a row, and of what is written where that is more."""
    return max(length, *(split.columns["input_ids"].shape[1] for split in splits.values()))


def rows(corpus: Corpus, split: str, tokenizer: PreTrainedTokenizerFast, length: int) -> Columns:
    """The documents of a split, one after the other in rows, with the number of bytes that are predicted in each."""
    end = np.array([tokenizer.eos_token_id])
    tokens = np.concatenate([part for row in ids(tokenizer, corpus.texts[split]) for part in (row, end)])
    found = pieces(tokens, length)
    columns = {"input_ids": (found, tokenizer.pad_token_id), "labels": (found, IGNORED)}
    counts = byte_counts(tokenizer)
    if counts is None:
        return padded(columns)
    return padded(columns, _bytes=[int(counts[row[1:]].sum()) for row in found])


def targets(corpus: Corpus, split: str, tokenizer: PreTrainedTokenizerFast) -> Columns:
    """Each text, a token that asks for its target, the target, and a token that ends it."""
    start, end = ([number] for number in (tokenizer.bos_token_id, tokenizer.eos_token_id))
    given = [np.append(row, start) for row in ids(tokenizer, corpus.texts[split])]
    wanted = [np.append(row, end) for row in ids(tokenizer, corpus.targets[split])]
    both = [np.concatenate(pair) for pair in zip(given, wanted, strict=True)]
    labels = [np.append(np.full(len(one), IGNORED), other) for one, other in zip(given, wanted, strict=True)]
    return padded({"input_ids": (both, tokenizer.pad_token_id), "labels": (labels, IGNORED)})


def collate(records: Sequence[Record], places: Sequence[int] | None) -> Batch:
    """A batch; what fills it up comes last, where a causal model's other tokens do not see it."""
    batch = cut(records, {"labels": IGNORED})
    return {**batch, "input_ids": batch["input_ids"][:, : batch["labels"].shape[1]]}


def score_text(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """Bytes that were predicted."""
    return {"_bytes": batch["_bytes"].sum()} if "_bytes" in batch else {}


def score_targets(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """Right tokens, and texts of which all are right."""
    wanted = batch["labels"][:, 1:]
    due = wanted != IGNORED
    right = (outputs.logits[:, :-1].argmax(-1) == wanted) & due
    return {"accuracy": right.sum(), "_exact": (right == due).all(1).sum(), "_texts": torch.tensor(len(due))}


def measure_text(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss, perplexity by token, and bits per byte where tokens spell bytes."""
    found = measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])
    if sums.get("_bytes"):
        found |= measure(["bits_per_byte"], [sums["loss"]], [int(sums["_bytes"])])
    return {"loss": sums["loss"] / sums["targets"], **found}


def measure_targets(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss and accuracy by token, and exact matches by text."""
    by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
    return {**by_token, "exact_match": sums["_exact"] / sums["_texts"]}


def continued(tokenizer: PreTrainedTokenizerFast, text: str, model: Any) -> Example:
    """The first words of a text, and how the model goes on without chance."""
    room = tokenizer.model_max_length
    prompt = " ".join(text.split(" ")[:PROMPT])[: room // 4]
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    options = {"max_new_tokens": min(WRITTEN, room - inputs["input_ids"].shape[1]), "do_sample": False}
    with torch.no_grad():
        written = model.generate(**inputs, **options)[0, inputs["input_ids"].shape[1] :]
    return Example(
        prompt, {"generated_text": prompt + str(tokenizer.decode(written, skip_special_tokens=True))}, options
    )
