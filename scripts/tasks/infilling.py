"""Fill in the middle: a document is split into prefix, middle and suffix, and the middle learned behind both.

Documents are split at letters, in the rows that a model reads (context level), so that tokens that a cursor cuts are
learned, too. Half of them begin with the prefix (PSM), and half with the suffix (SPM, whose prefix and middle are one).

Source: Bavarian et al. 2022, Efficient Training of Language Models to Fill in the Middle, §3 and appendix D (SPM,
    variant 2), https://arxiv.org/abs/2207.14255
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.collate import packed_row
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Record, stack
from qkv.scripts.data.tokenization import byte_counts, tokenize
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.causal_lm import CausalLM, TargetLM

PREFIX, SUFFIX, MIDDLE = SENTINELS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TYPED = re.compile(f"({'|'.join(map(re.escape, SENTINELS))})")
PSM = 0.5  # of the split documents


class InfillingLM(CausalLM):
    """Predict every next token of a corpus, in which some training documents have their middle at the end.

    What is drawn follows from the seed and the place of a row. Evaluated documents are in their order, so that bits per
    byte compare with other models.
    """

    def make_tokenizer(self, recipe: Recipe) -> Any:
        tokenizer, init = super().make_tokenizer(recipe), recipe.model.init
        if byte_counts(tokenizer) is None:
            raise ValueError(
                "text.fim_rate splits texts at any letter, which takes text.tokenizer=bpe, or another of bytes"
            )
        if init is not None and (lacking := [word for word in SENTINELS if word not in tokenizer.get_vocab()]):
            raise ValueError(
                f"text.fim_rate learns with {lacking[0]}, which the tokenizer of init={init!r} lacks; leave out "
                "init, or give a model that has learned with it"
            )
        tokenizer.add_special_tokens({"extra_special_tokens": list(SENTINELS)})
        tokenizer.split_special_tokens = False  # a prompt holds them
        self.rate, self.seed = recipe.text.fim_rate, recipe.seed
        return tokenizer

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        return stack(records if places is None else list(map(self.row, records, places)))

    def row(self, record: Record, place: int) -> Record:
        """Return a packed row, with some of its documents split."""
        ids, positions, labels = (np.asarray(record[name]) for name in ("input_ids", "position_ids", "labels"))
        random, starts = np.random.default_rng((self.seed, place)), np.flatnonzero(positions == 0)
        documents = [self.document(own, random.random(4)) for own in np.split(ids, starts[1:])]
        if (labels[starts[-1] :] < 0).all():  # padding
            documents.pop()
        return packed_row(documents, len(ids))

    def document(self, ids: NDArray[np.int64], draws: NDArray[np.float64]) -> Sequence[int]:
        """Return a document, by its four draws in [0, 1) split or as it is; it never gets longer.

        For the control tokens the end of the suffix is cut off, and after that the beginning of the prefix: a middle is
        whole, with the end token behind it. A document that is too short stays as it is, and one whose tokens are no
        text, as where a row begins within a letter.
        """
        end = self.tokenizer.eos_token_id
        text = self.tokenizer.decode(ids[:-1] if ids[-1] == end else ids, clean_up_tokenization_spaces=False)
        if draws[0] >= self.rate or "\ufffd" in text:
            return ids
        first, last = sorted(int(draw * (len(text) + 1)) for draw in draws[2:])
        parts = tokenize(self.tokenizer, [text[:first], text[first:last], text[last:]], add_special_tokens=False)
        prefix, middle, suffix = (part.tolist() for part in parts)
        room = len(ids) - len(middle) - len(SENTINELS) - 1
        if room < 0:
            return ids
        suffix = suffix[: max(room - len(prefix), 0)]
        prefix = prefix[max(len(prefix) - room, 0) :]
        before, behind, between = self.tokenizer.convert_tokens_to_ids(list(SENTINELS))
        if draws[1] < PSM:
            return [before, *prefix, behind, *suffix, between, *middle, end]
        return [before, behind, *suffix, between, *prefix, *middle, end]


def infilling_tokens(tokenizer: Any, prompt: str) -> list[int]:
    """Return the tokens of a prompt with the control tokens of infilling, which nothing else in it is."""
    parts = TYPED.split(prompt)
    first, *rows = (row.tolist() for row in tokenize(tokenizer, parts[::2], add_special_tokens=False))
    words = tokenizer.convert_tokens_to_ids(parts[1::2])
    return [*first, *(each for word, row in zip(words, rows, strict=True) for each in (word, *row))]


def causal_lm(recipe: Recipe, corpus: Corpus) -> CausalLM:
    """Make the task of a causal language model on a corpus: with targets, with middles to fill in, or plain."""
    if corpus.targets:
        return TargetLM(recipe, corpus)
    return (InfillingLM if recipe.text.fim_rate else CausalLM)(recipe, corpus)
