"""Sequence to sequence: texts and their targets, for an encoder-decoder."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns
from qkv.scripts.data.tokenization import SEQ2SEQ_TEMPLATE, CachedTokenizer, cached_tokenizer, config_fields
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import copy_source
from qkv.scripts.tasks.task import Answer, Task

# Metrics of translations, and of targets without spaces between words, which BLEU needs.
SENTENCES, WORDS = ("exact_match", "bleu", "chrf"), ("exact_match", "cer")
SPARE = 4  # tokens that may be generated beyond the longest target


def seq2seq(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of writing targets, truncated to `text.length` tokens; ValueError for a corpus without targets.

    Metrics are of what the model generates greedily.
    """
    if not corpus.targets:
        raise ValueError(f"data={corpus.name!r} has no targets to write; take data=numbers or data=dates")
    tokenize = cached_tokenizer(recipe, corpus.texts["train"] + corpus.targets["train"], SEQ2SEQ_TEMPLATE)
    tokenizer, splits = tokenize.tokenizer, columns(corpus, tokenize, recipe.text.length)
    references = [target for name in corpus.texts for target in corpus.targets[name]]
    decoder = GreedyDecoder(tokenizer, references, recipe.text.length + SPARE)
    metrics = SENTENCES if any(" " in target for target in corpus.targets["train"]) else WORDS
    return Task(
        data=corpus,
        kind="translation",
        train=splits.pop("train"),
        splits=splits,
        processor=tokenizer,
        answer=decoder.answer,
        metrics=metrics,
        collate=partial(pad_with_mask, fills={"input_ids": tokenizer.pad_token_id, "labels": IGNORED}),
        config=decoder.config | {"max_position_embeddings": decoder.max_tokens},
        baselines=partial(copy_source, corpus, metrics),
    )


def columns(corpus: Corpus, tokenize: CachedTokenizer, length: int) -> dict[str, Columns]:
    """Return the examples of each split, each with the number of its target among those of all splits."""
    splits, start, limits = {}, 0, {"truncation": True, "max_length": length}
    for name, texts in corpus.texts.items():
        sources, labels = tokenize(texts, **limits), tokenize(corpus.targets[name], **limits)
        rows = {"input_ids": (sources, tokenize.tokenizer.pad_token_id), "labels": (labels, IGNORED)}
        splits[name] = padded_columns(rows, _target=range(start, start + len(texts)))
        start += len(texts)
    return splits


@dataclass(frozen=True)
class GreedyDecoder:
    """Generates at most `max_tokens` tokens from a model's `inputs`; `references` are the targets of all splits."""

    tokenizer: PreTrainedTokenizerFast
    references: list[str]
    max_tokens: int
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")

    @property
    def config(self) -> dict[str, Any]:
        """Return the fields of the model's config that follow from the tokens."""
        return config_fields(self.tokenizer, decoder_start_token_id=self.tokenizer.pad_token_id)

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return what the model generates greedily for each input, and its reference."""
        inputs = {name: batch[name] for name in self.inputs}
        tokens = model.generate(**inputs, max_new_tokens=self.limit(batch), do_sample=False, num_beams=1)
        texts = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [(text, self.references[index]) for text, index in zip(texts, batch["_target"].tolist(), strict=True)]

    def limit(self, batch: Batch) -> int:
        """Return the maximum number of generated tokens."""
        return min(batch["labels"].shape[1] + SPARE, self.max_tokens)
