"""Of which kind is it? Sorting texts into classes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.training.baselines import linear_models
from qkv.scripts.training.corpus import Corpus
from qkv.scripts.training.metrics import measure
from qkv.scripts.training.padded import IGNORED, cut, padded
from qkv.scripts.training.recipe import Recipe
from qkv.scripts.training.task import Answer, Batch, Columns, Example, Record, Task
from qkv.scripts.training.tokenizer import AROUND, fields, ids, tokenizer_for


def classification(recipe: Recipe, corpus: Corpus) -> Task:
    """Texts and their labels, each text cut to `text.length` tokens; ValueError for a corpus without labels.

    Measured are accuracy and the F1 of each class, every class alike.
    """
    if not corpus.labels:
        raise ValueError(f"data={corpus.name!r} has no labels to learn; take data=django-paragraphs")
    tokenizer = tokenizer_for(recipe, corpus.texts["train"], AROUND)
    splits = {name: examples(corpus, name, tokenizer, recipe.text.length) for name in corpus.texts}
    return Task(
        name=corpus.name,
        title=corpus.title,
        kind="text-classification",
        source=corpus.source,
        train=splits.pop("train"),
        splits=splits,
        labels=list(corpus.names),
        processor=tokenizer,
        count=lambda batch: int((batch["labels"] != IGNORED).sum()),
        answer=chosen,
        measure=measured,
        collate=partial(collate, pad=tokenizer.pad_token_id),
        config={**fields(tokenizer), "max_position_embeddings": recipe.text.length},
        baselines=partial(linear_models, corpus),
        example=partial(sorted_out, tokenizer, corpus),
    )


def examples(corpus: Corpus, split: str, tokenizer: PreTrainedTokenizerFast, length: int) -> Columns:
    """The texts of a split as rows of tokens, and their labels."""
    found = ids(tokenizer, corpus.texts[split], truncation=True, max_length=length)
    return padded({"input_ids": (found, tokenizer.pad_token_id)}, labels=corpus.labels[split])


def collate(records: Sequence[Record], places: Sequence[int] | None, pad: int) -> Batch:
    """A batch of texts, none longer than its longest."""
    batch = cut(records, {"input_ids": pad})
    return {**batch, "attention_mask": (batch["input_ids"] != pad).long()}


def chosen(model: Any, outputs: Any, batch: Batch) -> list[Answer]:
    """The class of each text, and the right one."""
    return list(zip(outputs.logits.argmax(-1).tolist(), batch["labels"].tolist(), strict=True))


def measured(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss, accuracy, and the mean F1 of the classes."""
    predictions, references = zip(*answers, strict=True)
    return {"loss": sums["loss"] / sums["targets"], **measure(["accuracy", "f1_macro"], predictions, references)}


def sorted_out(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, model: Any) -> Example:
    """The first text of the test, and its class as the model sees it."""
    text = corpus.texts["test"][0]
    inputs = tokenizer(text, return_tensors="pt", truncation=True).to(model.device)
    with torch.no_grad():
        label = int(model(**inputs).logits.argmax())
    return Example(text, {"label": corpus.names[label]}, {"truncation": True})
