"""What comes next? Causal language modeling on rows of text, or on texts and what is to be written after them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, cut, padded
from qkv.scripts.data.corpus import Corpus, task_of
from qkv.scripts.data.packing import pack
from qkv.scripts.data.text_columns import streamed
from qkv.scripts.data.tokenization import byte_counts, tokenizer_for
from qkv.scripts.data.tokens import Encoder
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import byte_model
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Batch, Columns, Example, Record, Task, stack

KIND = "text-generation"
# Words of a test document that a pipeline goes on from, and tokens that it writes.
PROMPT, WRITTEN = 8, 12


def language(recipe: Recipe, corpus: Corpus) -> Task:
    """A causal language model's task on a corpus.

    Documents, each ended by a token, follow one another in rows of `text.length` and do not see each other; bits per
    byte are over the bytes of all tokens that are predicted, which is all but the first of a document or a row. Of
    texts with targets only the targets count, and `exact_match` says how many are right to the last token: those that
    greedy decoding would write.
    """
    if corpus.targets:
        return answering(recipe, corpus)
    tokenizer = tokenizer_for(recipe, corpus.texts["train"], needs=["eos"])
    encoder, length = Encoder(tokenizer, recipe.workers), recipe.text.length
    splits = {name: rows(encoder, texts, length) for name, texts in corpus.texts.items()}
    shown = {
        "baselines": partial(byte_model, corpus),
        "example": partial(continued, tokenizer, corpus.texts["test"][0]),
    }
    train = splits.pop("train")
    return task_of(corpus, tokenizer, KIND, length, train=train, splits=splits, **shown, **ROWS)


def streamed_language(recipe: Recipe) -> Task:
    """A causal language model's task on texts that are read as they are needed, packed into rows."""
    tokenizer = tokenizer_for(recipe, [], needs=["eos"])
    encoder, length = Encoder(tokenizer), recipe.text.length

    def prepare(texts: Sequence[str], targets: Sequence[str]) -> list[list[Record]]:
        return [[{"input_ids": document}] for document in documents(encoder, texts)]

    stream, corpus = streamed(recipe, prepare, length)
    splits = {name: rows(encoder, texts, length) for name, texts in corpus.texts.items()}
    held = {"splits": splits, "complaints": stream.complaints}
    return task_of(corpus, tokenizer, KIND, length, train=stream, **held, **ROWS)


def answering(recipe: Recipe, corpus: Corpus) -> Task:
    """The task of writing the target after the text that it belongs to."""
    tokenizer = tokenizer_for(recipe, corpus.texts["train"] + corpus.targets["train"], needs=["bos", "eos"])
    encoder = Encoder(tokenizer, recipe.workers)
    splits = {name: answers(encoder, texts, corpus.targets[name]) for name, texts in corpus.texts.items()}
    longest = max(split.columns["input_ids"].shape[1] for split in splits.values())
    return task_of(
        corpus,
        tokenizer,
        KIND,
        max(recipe.text.length, longest),
        train=splits.pop("train"),
        splits=splits,
        count=targeted,
        score=score_answers,
        measure=measure_answers,
        collate=collate,
        example=partial(continued, tokenizer, corpus.texts["test"][0]),
    )


def documents(encoder: Encoder, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of each text, and one that ends it."""
    end = encoder.tokenizer.eos_token_id
    return [[*row.tolist(), end] for row in encoder(texts)]


def rows(encoder: Encoder, texts: Sequence[str], length: int) -> Columns:
    """Documents packed into rows, with the number of bytes that are predicted in each."""
    found = Columns(stack(list(pack(documents(encoder, texts), length))))
    counts = byte_counts(encoder.tokenizer)
    if counts is not None:
        labels = found.columns["labels"]
        found.columns["_bytes"] = torch.from_numpy(counts)[labels.clamp(min=0)].where(labels != IGNORED, 0).sum(1)
    return found


def answers(encoder: Encoder, texts: Sequence[str], targets: Sequence[str]) -> Columns:
    """Each text, a token that asks for its target, the target, and a token that ends it."""
    start, end = encoder.tokenizer.bos_token_id, encoder.tokenizer.eos_token_id
    given = [np.append(row, start) for row in encoder(texts)]
    wanted = [np.append(row, end) for row in encoder(targets)]
    both = [np.concatenate(pair) for pair in zip(given, wanted, strict=True)]
    labels = [np.append(np.full(len(one), IGNORED), other) for one, other in zip(given, wanted, strict=True)]
    return padded({"input_ids": (both, encoder.tokenizer.pad_token_id), "labels": (labels, IGNORED)})


def targeted(batch: Batch) -> int:
    """How many tokens are to be predicted."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def collate(records: Sequence[Record], places: Sequence[int] | None) -> Batch:
    """A batch; what fills it up comes last, where a causal model's other tokens do not see it."""
    batch = cut(records, {"labels": IGNORED})
    return {**batch, "input_ids": batch["input_ids"][:, : batch["labels"].shape[1]]}


def score_rows(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """Bytes that were predicted."""
    return {"_bytes": batch["_bytes"].sum()} if "_bytes" in batch else {}


def score_answers(outputs: Any, batch: Batch) -> dict[str, Tensor]:
    """Right tokens, and texts of which all are right."""
    wanted = batch["labels"][:, 1:]
    due = wanted != IGNORED
    right = (outputs.logits[:, :-1].argmax(-1) == wanted) & due
    return {"accuracy": right.sum(), "_exact": (right == due).all(1).sum(), "_texts": torch.tensor(len(due))}


def measure_rows(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss, perplexity by token, and bits per byte where tokens spell bytes."""
    found = measure(["perplexity"], [sums["loss"]], [int(sums["targets"])])
    if sums.get("_bytes"):
        found |= measure(["bits_per_byte"], [sums["loss"]], [int(sums["_bytes"])])
    return {"loss": sums["loss"] / sums["targets"], **found}


def measure_answers(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss and accuracy by token, and exact matches by text."""
    by_token = {name: sums[name] / sums["targets"] for name in ("loss", "accuracy")}
    return {**by_token, "exact_match": sums["_exact"] / sums["_texts"]}


# What is asked of rows, whether they are in a table or a stream.
ROWS = {"count": targeted, "score": score_rows, "measure": measure_rows}


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
