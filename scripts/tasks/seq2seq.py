"""Sequence to sequence: texts and their targets, for an encoder-decoder."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from qkv.scripts.data.collate import IGNORED, pad_with_mask, padded_columns, padding_of
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.mixture import Mixture
from qkv.scripts.data.tokenization import SEQ2SEQ_TEMPLATE, config_fields, count_truncated, tokenizer_for, truncate
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Metrics, Task

# Metrics of translations, and of targets without spaces between words, which BLEU needs.
SENTENCES, WORDS = ("exact_match", "bleu", "chrf"), ("exact_match", "cer")
SPARE = 4  # tokens that may be generated beyond the longest target


class GreedyDecoding:
    """Score greedy decoding of the `inputs` of a batch; `_target` has the numbers of its `references`."""

    generates = True
    inputs = ("input_ids", "attention_mask")
    tokenizer: Any
    references: list[str]
    max_tokens: int  # whatever the batch, or a score depends on its other rows

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the text of greedy decoding for each input, and its reference."""
        inputs = {name: batch[name] for name in self.inputs}
        tokens = model.generate(**inputs, max_new_tokens=self.max_tokens, do_sample=False, num_beams=1)
        texts = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [(text, self.references[index]) for text, index in zip(texts, batch["_target"].tolist(), strict=True)]


class Seq2Seq(GreedyDecoding, Task):
    """Write targets, truncated to `text.length` tokens; ValueError for a corpus without targets.

    Metrics are of greedy decoding.
    """

    kind = "translation"
    has_references = True

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        if not corpus.targets:
            raise ValueError(
                f"data={corpus.name!r} has no targets to write; name their column: text.target=…, or learn from texts "
                "alone: text.corruption=spans"
            )
        learned = corpus.texts.get("train", []), corpus.targets.get("train", corpus.targets.get("test", []))
        self.tokenizer = tokenizer_for(recipe, [*learned[0], *learned[1]], SEQ2SEQ_TEMPLATE)
        self.corpus, length = corpus, recipe.text.length
        self.references = [target for name in corpus.texts for target in corpus.targets[name]]
        metrics = SENTENCES if any(" " in target for target in learned[1]) else WORDS
        self.fills = {"input_ids": padding_of(self.tokenizer), "labels": IGNORED}
        splits, start, lengths = {}, 0, {}
        for name, texts in corpus.texts.items():
            rows = {"input_ids": texts, "labels": corpus.targets[name]}
            tokens = {key: truncate(self.tokenizer, each, length) for key, each in rows.items()}
            columns = {key: (each, self.fills[key]) for key, (each, _) in tokens.items()}
            lengths[name] = [max(both) for both in zip(*(own for _, own in tokens.values()), strict=True)]
            splits[name] = padded_columns(columns, _target=range(start, start + len(texts)))
            start += len(texts)
        self.max_tokens = max(split.columns["labels"].shape[1] for split in splits.values()) + SPARE
        ids = {"decoder_start_token_id": self.tokenizer.pad_token_id, "max_position_embeddings": length + SPARE}
        config, cut = config_fields(self.tokenizer, **ids), count_truncated(lengths, length)
        # Or `generate` ends after 20 tokens, its default.
        limit = {"max_new_tokens": length + SPARE}
        super().__init__(corpus, splits, self.tokenizer, config, metrics=metrics, generation=limit, truncated=cut)

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        return pad_with_mask(records, self.fills)


class TaskText(str):
    """The text to be written for a task."""

    task: str


class MultitaskSeq2Seq(Seq2Seq):
    """Write targets of several tasks, which a prefix of each text names; they are drawn at their mixing rates.

    Beside the metrics of all texts there are those of each task, such as `exact_match of translate`.
    """

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        super().__init__(recipe, corpus)
        names = [task for split in corpus.texts for task in corpus.tasks[split]]
        written = list(map(TaskText, self.references))
        for reference, name in zip(written, names, strict=True):
            reference.task = name
        self.references[:] = written
        if train := corpus.tasks.get("train"):
            self.mixture = Mixture.of(train, recipe.text.mixing_limit, recipe.text.mixing_temperature)

    def shown(self, answer: Answer) -> Record:
        return {"task": answer[1].task, **super().shown(answer)}

    def measure(self, sums: Metrics, answers: Sequence[Answer], names: Sequence[str] | None = None) -> Metrics:
        """Compute the metrics of a split, and the named ones of each task."""
        metrics, by_task = super().measure(sums, answers, names), defaultdict[str, list[Answer]](list)
        for answer in answers:
            by_task[answer[1].task].append(answer)
        for task in sorted(by_task):
            scores = measure(self.metrics if names is None else names, *zip(*by_task[task], strict=True))
            metrics |= {f"{name} of {task}": value for name, value in scores.items()}
        return metrics
