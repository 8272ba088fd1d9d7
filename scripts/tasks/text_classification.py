"""Classification of texts."""

from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, cached_tokenizer, config_fields
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import linear_models
from qkv.scripts.tasks.task import Answer, Example, Task


def text_classification(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of classifying texts, truncated to `text.length` tokens; ValueError for a corpus without labels."""
    if not corpus.labels:
        raise ValueError(f"data={corpus.name!r} has no labels to learn; take data=django-paragraphs")
    tokenize, length = cached_tokenizer(recipe, corpus.texts["train"], ENCODER_TEMPLATE), recipe.text.length
    fills, splits = {"input_ids": tokenize.tokenizer.pad_token_id}, {}
    for name, texts in corpus.texts.items():
        rows = tokenize(texts, truncation=True, max_length=length)
        splits[name] = padded_columns({"input_ids": (rows, fills["input_ids"])}, labels=corpus.labels[name])
    return Task(
        data=corpus,
        kind="text-classification",
        train=splits.pop("train"),
        splits=splits,
        processor=tokenize.tokenizer,
        labels=list(corpus.names),
        answer=classes,
        metrics=("accuracy", "f1_macro"),
        collate=partial(pad_with_mask, fills=fills),
        config=config_fields(tokenize.tokenizer, max_position_embeddings=length),
        baselines=partial(linear_models, corpus),
        example=partial(first_class, tokenize.tokenizer, corpus),
    )


def classes(model: Any, outputs: Any, batch: Batch) -> list[Answer]:
    """Return the predicted class of each text, and its label."""
    return list(zip(outputs.logits.argmax(-1).tolist(), batch["labels"].tolist(), strict=True))


def first_class(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, model: Any) -> Example:
    """Return the first text of the test, and the model's class."""
    text = corpus.texts["test"][0]
    inputs = tokenizer(text, return_tensors="pt", truncation=True).to(model.device)
    with torch.no_grad():
        label = int(model(**inputs).logits.argmax())
    return Example(text, {"label": corpus.names[label]}, {"truncation": True})
