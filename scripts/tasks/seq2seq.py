"""What is to be written from it? Texts and their targets, for an encoder-decoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, attended, padded
from qkv.scripts.data.corpus import Corpus, task_of
from qkv.scripts.data.tokenization import AFTER, tokenizer_for
from qkv.scripts.data.tokens import Encoder
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import copied
from qkv.scripts.tasks.metrics import measure, signatures
from qkv.scripts.tasks.task import Answer, Batch, Columns, Task

# What translations are judged by, and what is written without spaces between words, of which BLEU knows nothing.
SENTENCES, WORDS = ("exact_match", "bleu", "chrf"), ("exact_match", "cer")
# Tokens that may be written beyond the longest target.
SPARE = 4


def seq2seq(recipe: Recipe, corpus: Corpus) -> Task:
    """Texts and targets, each cut to `text.length` tokens; ValueError for a corpus without targets.

    Metrics are of what the model writes by itself, word after word, about the texts of an evaluated split.
    """
    if not corpus.targets:
        raise ValueError(f"data={corpus.name!r} has no targets to write; take data=numbers or data=dates")
    tokenizer = tokenizer_for(recipe, corpus.texts["train"] + corpus.targets["train"], AFTER)
    splits = tables(corpus, Encoder(tokenizer, recipe.workers), recipe.text.length)
    wanted = [target for name in corpus.texts for target in corpus.targets[name]]
    writer = Writer(tokenizer, wanted, recipe.text.length + SPARE)
    metrics = SENTENCES if any(" " in target for target in corpus.targets["train"]) else WORDS
    return task_of(
        corpus,
        tokenizer,
        "translation",
        writer.longest,
        config={"decoder_start_token_id": tokenizer.pad_token_id},
        train=splits.pop("train"),
        splits=splits,
        count=lambda batch: int((batch["labels"] != IGNORED).sum()),
        answer=writer.answer,
        measure=partial(measured, metrics),
        collate=partial(attended, fills={"input_ids": tokenizer.pad_token_id, "labels": IGNORED}),
        signatures=signatures(metrics),
        baselines=partial(copied, corpus, metrics),
    )


def tables(corpus: Corpus, encoder: Encoder, length: int) -> dict[str, Columns]:
    """The examples of each split, with the number of the target of each among those of all."""
    found, start, limits = {}, 0, {"truncation": True, "max_length": length}
    for name, texts in corpus.texts.items():
        sources, labels = encoder(texts, **limits), encoder(corpus.targets[name], **limits)
        columns = {"input_ids": (sources, encoder.tokenizer.pad_token_id), "labels": (labels, IGNORED)}
        found[name] = padded(columns, _target=range(start, start + len(texts)))
        start += len(texts)
    return found


@dataclass(frozen=True)
class Writer:
    """Lets a model write at most `longest` tokens about what it `reads`; `wanted` are the targets of all splits."""

    tokenizer: PreTrainedTokenizerFast
    wanted: list[str]
    longest: int
    reads: tuple[str, ...] = ("input_ids", "attention_mask")

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """What the model writes about each, always the likeliest token, and what was wanted."""
        inputs = {name: batch[name] for name in self.reads}
        tokens = model.generate(**inputs, max_new_tokens=self.room(batch), do_sample=False, num_beams=1)
        texts = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [(text, self.wanted[index]) for text, index in zip(texts, batch["_target"].tolist(), strict=True)]

    def room(self, batch: Batch) -> int:
        """How many tokens may be written at most."""
        return min(batch["labels"].shape[1] + SPARE, self.longest)


def measured(metrics: Sequence[str], sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Loss by token, and metrics of what was written."""
    predictions, references = zip(*answers, strict=True)
    return {"loss": sums["loss"] / sums["targets"], **measure(metrics, predictions, references)}
