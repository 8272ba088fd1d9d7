"""Classification of texts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, CachedTokenizer, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import linear_models
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Example, Task, text_task


def text_classification(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of classifying texts, truncated to `text.length` tokens; ValueError for a corpus without labels."""
    if not corpus.labels:
        raise ValueError(f"data={corpus.name!r} has no labels to learn; take data=django-paragraphs")
    tokenizer = tokenizer_for(recipe, corpus.texts["train"], ENCODER_TEMPLATE)
    tokenize, fills = CachedTokenizer(tokenizer, recipe.data.workers), {"input_ids": tokenizer.pad_token_id}
    splits = {}
    for name, texts in corpus.texts.items():
        rows = tokenize(texts, truncation=True, max_length=recipe.text.length)
        splits[name] = padded_columns({"input_ids": (rows, tokenizer.pad_token_id)}, labels=corpus.labels[name])
    return text_task(
        corpus,
        tokenizer,
        "text-classification",
        recipe.text.length,
        labels=list(corpus.names),
        train=splits.pop("train"),
        splits=splits,
        count=lambda batch: len(batch["labels"]),
        answer=classes,
        measure=measure_classes,
        collate=partial(pad_with_mask, fills=fills),
        baselines=partial(linear_models, corpus),
        example=partial(first_class, tokenizer, corpus),
    )


def classes(model: Any, outputs: Any, batch: Batch) -> list[Answer]:
    """Return the predicted class of each text, and its label."""
    return list(zip(outputs.logits.argmax(-1).tolist(), batch["labels"].tolist(), strict=True))


def measure_classes(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Return the loss, the accuracy, and the macro F1."""
    predictions, references = zip(*answers, strict=True)
    return {"loss": sums["loss"] / sums["targets"], **measure(["accuracy", "f1_macro"], predictions, references)}


def first_class(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, model: Any) -> Example:
    """Return the first text of the test, and the model's class."""
    text = corpus.texts["test"][0]
    inputs = tokenizer(text, return_tensors="pt", truncation=True).to(model.device)
    with torch.no_grad():
        label = int(model(**inputs).logits.argmax())
    return Example(text, {"label": corpus.names[label]}, {"truncation": True})
