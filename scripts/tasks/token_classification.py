"""Classification of words, such as named entities and parts of speech."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qkv.scripts.data.collate import IGNORED, pad_rows, pad_with_mask, padded_columns, padding_of
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.text_columns import TaggedWords
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, config_fields, count_truncated, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.class_scores import MISSED
from qkv.scripts.tasks.task import Answer, Task, first


class TokenClassification(Task):
    """Tag words, which are read as one text with spaces between them, truncated to `text.length` tokens.

    The first token of a word has its tag, the others none; a word that was cut off counts as missed. Where tags are
    IOB2's (B-PER, I-PER, O) metrics are of whole entities, by seqeval; otherwise of words.
    """

    kind = "token-classification"
    has_references = True

    def __init__(self, recipe: Recipe, data: TaggedWords) -> None:
        self.tagged, self.length = data, recipe.text.length
        joined = {name: [" ".join(words) for words in rows] for name, rows in data.texts.items()}
        self.tokenizer = tokenizer_for(recipe, joined.get("train", []), ENCODER_TEMPLATE)
        self.fills = {"input_ids": padding_of(self.tokenizer), **dict.fromkeys(("labels", "_tags", "_read"), IGNORED)}
        self.entities = all(name == "O" or name[:2] in ("B-", "I-") for name in data.names)
        metrics = ("seqeval",) if self.entities else ("accuracy", "f1_macro")
        splits = {name: self.examples_of(data.texts[name], data.labels[name]) for name in data.texts}
        config = config_fields(self.tokenizer, max_position_embeddings=self.length)
        lengths = {name: [len(row) for row in tokenize(self.tokenizer, own)] for name, own in joined.items()}
        cut = count_truncated(lengths, self.length)
        super().__init__(data, splits, self.tokenizer, config, list(data.names), metrics, truncated=cut)

    def examples_of(self, words: Sequence[list[str]], tags: Sequence[list[int]]) -> Columns:
        """Return the tokens of rows of words, with a tag at the first token of each word."""
        given = self.tokenizer(
            [" ".join(row) for row in words], truncation=True, max_length=self.length, return_offsets_mapping=True,
            return_attention_mask=False, verbose=False,
        )  # fmt: skip
        ids = [np.asarray(row, dtype=np.int64) for row in given["input_ids"]]
        firsts = [first_tokens(row, offsets) for row, offsets in zip(words, given["offset_mapping"], strict=True)]
        labels = [
            np.array([IGNORED if word is None else own[word] for word in row], dtype=np.int64)
            for row, own in zip(firsts, tags, strict=True)
        ]
        examples = padded_columns({"input_ids": (ids, self.fills["input_ids"]), "labels": (labels, IGNORED)})
        read = [np.isin(np.arange(len(own)), [word for word in row if word is not None]).astype(np.int64)
                for row, own in zip(firsts, tags, strict=True)]  # fmt: skip
        if not all(row.all() for row in read):
            examples.columns |= {
                "_tags": pad_rows(list(map(np.asarray, tags)), IGNORED),
                "_read": pad_rows(read, IGNORED),
            }
        return examples

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        batch = pad_with_mask(records, self.fills)
        # A row may end in tokens without a tag, and labels are as long as tokens.
        width = batch["input_ids"].shape[1] - batch["labels"].shape[1]
        return {**batch, "labels": torch.nn.functional.pad(batch["labels"], (0, width), value=IGNORED)}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return predicted and true tags of each row, or of each word where there are no entities."""
        predicted, rows = outputs.logits.argmax(-1), []
        for place, (own, labels) in enumerate(zip(predicted, batch["labels"], strict=True)):
            due = labels != IGNORED
            answered, tags = [self.labels[tag] for tag in own[due]], labels[due]
            if "_read" in batch:
                tags, read = (batch[name][place][batch[name][place] != IGNORED] for name in ("_tags", "_read"))
                left = iter(answered)
                answered = [next(left) if word else MISSED for word in read]
            rows.append((answered, [self.labels[tag] for tag in tags]))
        return rows if self.entities else [pair for row in rows for pair in zip(*row, strict=True)]

    def prompt(self) -> str:
        return " ".join(first(self.tagged.texts) or [])


def first_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return the number of the word that each token is the first of, by the tokens' places in the joined words."""
    ends = np.cumsum([len(word) + 1 for word in words])
    seen: set[int] = set()
    numbers: list[int | None] = []
    for begin, end in offsets:
        # A token may begin with the space before its word, or be that space.
        word = int(np.searchsorted(ends, end - 1, side="right")) if end > begin else len(words)
        first = word < len(words) and end - 1 != ends[word] - 1 and word not in seen
        numbers.append(word if first else None)
        seen |= {word} if first else set()
    return numbers
