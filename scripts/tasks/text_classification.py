"""Of which kind is it? Sorting texts into classes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import attended, padded
from qkv.scripts.data.corpus import Corpus, task_of
from qkv.scripts.data.tokenization import AROUND, tokenizer_for
from qkv.scripts.data.tokens import Encoder
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import linear_models
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Batch, Example, Task


def classification(recipe: Recipe, corpus: Corpus) -> Task:
    """Texts and their labels, each text cut to `text.length` tokens; ValueError for a corpus without labels.

    Measured are accuracy and the F1 of each class, every class alike.
    """
    if not corpus.labels:
        raise ValueError(f"data={corpus.name!r} has no labels to learn; take data=django-paragraphs")
    tokenizer = tokenizer_for(recipe, corpus.texts["train"], AROUND)
    encoder, fills = Encoder(tokenizer, recipe.workers), {"input_ids": tokenizer.pad_token_id}
    splits = {}
    for name, texts in corpus.texts.items():
        rows = encoder(texts, truncation=True, max_length=recipe.text.length)
        splits[name] = padded({"input_ids": (rows, tokenizer.pad_token_id)}, labels=corpus.labels[name])
    return task_of(
        corpus,
        tokenizer,
        "text-classification",
        recipe.text.length,
        labels=list(corpus.names),
        train=splits.pop("train"),
        splits=splits,
        count=lambda batch: len(batch["labels"]),
        answer=chosen,
        measure=measured,
        collate=partial(attended, fills=fills),
        baselines=partial(linear_models, corpus),
        example=partial(sorted_out, tokenizer, corpus),
    )


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
