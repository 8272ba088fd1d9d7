"""Classification of texts and of pairs of texts, and numbers predicted from them."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qkv.scripts.data.collate import pad_with_mask, padded_columns, padding_of
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.pretrained import is_regression
from qkv.scripts.data.text_columns import MULTI_LABEL, has_several
from qkv.scripts.data.tokenization import (
    ENCODER_TEMPLATE,
    PAIR_TEMPLATE,
    config_fields,
    count_truncated,
    tokenizer_for,
    truncate,
)
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Answer, Task


class TextTask(Task):
    """Read texts, or pairs of them, truncated to `text.length` tokens; a subclass returns the targets."""

    kind = "text-classification"
    has_references = True

    def __init__(self, recipe: Recipe, corpus: Corpus, **fields: Any) -> None:
        self.corpus, self.length = corpus, recipe.text.length
        texts = [*corpus.texts.get("train", []), *corpus.pairs.get("train", [])]
        pair = PAIR_TEMPLATE if corpus.pairs else ""
        self.tokenizer: Any = tokenizer_for(recipe, texts, ENCODER_TEMPLATE, pair=pair)
        self.fills = {"input_ids": padding_of(self.tokenizer)}
        self.whole_lengths: dict[str, list[int]] = {}
        splits = {name: self.examples_of(name) for name in corpus.texts}
        config = config_fields(self.tokenizer, max_position_embeddings=self.length) | fields.pop("config", {})
        cut = count_truncated(self.whole_lengths, self.length)
        super().__init__(corpus, splits, self.tokenizer, config, truncated=cut, **fields)

    @abstractmethod
    def targets(self, split: str) -> Tensor:
        """Return the target of each text of a split."""

    def examples_of(self, split: str) -> Columns:
        """Return the tokens of a split, and its targets."""
        texts, pairs = self.corpus.texts[split], self.corpus.pairs.get(split)
        if pairs is None:
            tokens, self.whole_lengths[split] = truncate(self.tokenizer, texts, self.length)
            columns = {"input_ids": (tokens, self.fills["input_ids"])}
        else:
            options: dict[str, Any] = {"return_attention_mask": False, "verbose": False}
            self.whole_lengths[split] = list(map(len, self.tokenizer(texts, pairs, **options)["input_ids"]))
            made = self.tokenizer(texts, pairs, truncation=True, max_length=self.length, **options)
            rows = {name: [np.asarray(row) for row in column] for name, column in made.items()}
            columns = {name: (column, self.fills.get(name, 0)) for name, column in rows.items()}
        examples = padded_columns(columns)
        examples.columns["labels"] = self.targets(split)
        return examples

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        batch = pad_with_mask(records, self.fills)
        width = batch["input_ids"].shape[1]
        return {name: own if name == "labels" else own[:, :width] for name, own in batch.items()}

    def count(self, batch: Batch) -> int:
        return len(batch["labels"])


class TextClassification(TextTask):
    """Learn the class of each text; ValueError for a corpus without labels."""

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        if not corpus.labels:
            raise ValueError(f"data={corpus.name!r} has no labels to learn; name their column: text.label=…")
        super().__init__(recipe, corpus, labels=list(corpus.names), metrics=("accuracy", "f1_macro"))

    def targets(self, split: str) -> Tensor:
        """Return the number of each class."""
        return torch.tensor(self.corpus.labels[split])

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the predicted class of each text, and its label."""
        return list(zip(outputs.logits.argmax(-1).tolist(), batch["labels"].tolist(), strict=True))


class MultiLabelClassification(TextTask):
    """Learn which of several classes each text has, by a sigmoid for each; a class is predicted from 0.5 on."""

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        config = {"problem_type": MULTI_LABEL}
        super().__init__(recipe, corpus, labels=list(corpus.names), metrics=("multi_label",), config=config)

    def targets(self, split: str) -> Tensor:
        """Return 1 for each class of a text, and 0 for the others."""
        return torch.tensor(self.corpus.labels[split], dtype=torch.float32).reshape(-1, len(self.corpus.names))

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the names of the predicted classes of each text, and of its classes."""
        both = zip((outputs.logits >= 0).tolist(), batch["labels"].bool().tolist(), strict=True)
        return [(list(compress(self.labels, one)), list(compress(self.labels, own))) for one, own in both]


def regression_head(model: nn.Module) -> nn.Linear:
    """Return the last linear map of a model, to one number."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)][-1]


class TextRegression(TextTask):
    """Learn a number for each text, by the mean squared error.

    In training, numbers are `mean` 0 and `deviation` 1, so that any unit is learned alike; losses are of these, metrics
    and the trained model of numbers in the unit of the data.
    """

    mean = 0.0
    deviation = 1.0

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        self.has_pretrained_head = is_regression(recipe.model.init)
        names = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}  # one score, as in transformers
        config = {"problem_type": "regression", **names}
        super().__init__(recipe, corpus, config=config, metrics=("mae", "rmse", "pearson", "spearman"))

    def targets(self, split: str) -> Tensor:
        """Return the numbers."""
        return torch.tensor(self.corpus.numbers[split], dtype=torch.float64)

    def before_training(self, model: Any) -> Any:
        """Measure the mean and deviation of the training split; scale the head of a pretrained regression."""
        numbers, head = self.targets("train"), regression_head(model)
        # A head without a bias cannot give the mean back.
        self.mean = float(numbers.mean()) if head.bias is not None else 0.0
        self.deviation = float((numbers - self.mean).square().mean().sqrt()) or 1.0
        if self.has_pretrained_head:
            rescale(head, -self.mean / self.deviation, 1 / self.deviation)
        return model

    def after_training(self, model: Any) -> None:
        """Scale the head, so that the model predicts numbers in the unit of the data."""
        rescale(regression_head(model), self.mean, self.deviation)
        self.mean, self.deviation = 0.0, 1.0

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        batch = super().collate(records, places)
        return {**batch, "labels": ((batch["labels"] - self.mean) / self.deviation).float()}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the predicted number of each text, and the true one."""
        both = torch.stack([outputs.logits[:, 0].double(), batch["labels"].double()], 1) * self.deviation + self.mean
        return [(predicted, own) for predicted, own in both.tolist()]


def rescale(head: nn.Linear, mean: float, deviation: float) -> None:
    """Change a linear map so that its outputs are times `deviation` plus `mean`."""
    with torch.no_grad():
        head.weight.mul_(deviation)
        if head.bias is not None:
            head.bias.mul_(deviation).add_(mean)


def text_classification(recipe: Recipe, corpus: Corpus) -> TextTask:
    """Make the task of a classifier of texts, with one class or several, or of a regression where there are numbers."""
    several = MultiLabelClassification if has_several(recipe) else TextClassification
    return (TextRegression if corpus.numbers else several)(recipe, corpus)
