"""Classification of texts."""

from collections.abc import Sequence
from typing import Any

import torch

from qkv.scripts.data.collate import pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Baselines, Corpus
from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, cached_tokenizer, config_fields
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import linear_models
from qkv.scripts.tasks.task import Answer, Example, Task


class TextClassification(Task):
    """Classify texts, truncated to `text.length` tokens; ValueError for a corpus without labels."""

    kind = "text-classification"

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        if not corpus.labels:
            raise ValueError(f"data={corpus.name!r} has no labels to learn; take data=django-paragraphs")
        self.corpus, length = corpus, recipe.text.length
        tokenize = cached_tokenizer(recipe, corpus.texts["train"], ENCODER_TEMPLATE)
        self.fills, splits = {"input_ids": tokenize.tokenizer.pad_token_id}, {}
        for name, texts in corpus.texts.items():
            rows = tokenize(texts, truncation=True, max_length=length)
            splits[name] = padded_columns({"input_ids": (rows, self.fills["input_ids"])}, labels=corpus.labels[name])
        config = config_fields(tokenize.tokenizer, max_position_embeddings=length)
        labels, metrics = list(corpus.names), ("accuracy", "f1_macro")
        super().__init__(corpus, splits, tokenize.tokenizer, config, labels, metrics)

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Make a batch, padded to its longest text."""
        return pad_with_mask(records, self.fills)

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the predicted class of each text, and its label."""
        return list(zip(outputs.logits.argmax(-1).tolist(), batch["labels"].tolist(), strict=True))

    def baselines(self) -> Baselines:
        """Measure linear models of words and characters."""
        return linear_models(self.corpus)

    def example(self, model: Any) -> Example:
        """Return the first text of the test, and the model's class."""
        text = self.corpus.texts["test"][0]
        inputs = self.processor(text, return_tensors="pt", truncation=True).to(model.device)
        with torch.no_grad():
            label = int(model(**inputs).logits.argmax())
        return Example(text, {"label": self.labels[label]}, {"truncation": True})
