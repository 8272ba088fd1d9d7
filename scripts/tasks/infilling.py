"""Fill in the middle: a text is split into prefix, suffix and middle, and the middle learned behind both.

Texts are split at letters, in the pieces that a model reads (context level), so that tokens that a cursor cuts are
learned, too. All begin with the prefix (PSM).

Source: Bavarian et al. 2022, Efficient Training of Language Models to Fill in the Middle, §3,
    https://arxiv.org/abs/2207.14255
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from qkv.scripts.data.collate import IGNORED, pad_with_mask, padded_columns
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.dialogues import Dialogues
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.tokenization import byte_counts, control_words, tokenize
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.causal_lm import CausalLM, ResponseLM, TargetLM, Tokens
from qkv.scripts.tasks.chat import Chat

PREFIX, SUFFIX, MIDDLE = SENTINELS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


class InfillingLM(ResponseLM):
    """Predict every next token of texts, in pieces, the share `text.fim_rate` of which have their middle at the end.

    What is drawn follows from the seed and the place of a piece. In evaluated splits each is split once, and its middle
    alone counts.
    """

    is_packed = False

    def make_tokenizer(self, recipe: Recipe) -> Any:
        self.rate, self.seed, tokenizer = recipe.text.fim_rate, recipe.seed, super().make_tokenizer(recipe)
        if byte_counts(tokenizer) is None:
            raise ValueError("text.fim_rate splits texts at any letter; take text.tokenizer=bpe, or another of bytes")
        mend = "leave out init, or give a model that was made by text.fim_rate"
        self.sentinels = control_words(tokenizer, SENTINELS, recipe.model.init, mend)
        return tokenizer

    def examples_of(self, texts: Sequence[str]) -> list[list[Record]]:
        """Return the pieces of each text, with room for the control words."""
        room = self.length - len(SENTINELS) - 1
        return [
            [{"input_ids": row[at : at + room]} for at in range(0, len(row), room)] for row in self.documents(texts)
        ]

    def rows(self, split: str) -> Columns:
        """Return the pieces of the training, and those of other splits that can be split, in parts."""
        pieces = [piece["input_ids"] for own in self.examples_of(self.corpus.texts[split]) for piece in own]
        if split == "train":
            return padded_columns({"input_ids": (pieces, IGNORED)})
        rows = [self.split(piece, np.random.default_rng((0, place)).random(2)) for place, piece in enumerate(pieces)]
        whole = [row for row, piece in zip(rows, pieces, strict=True) if row is not piece]
        return self.respond([(row, np.arange(len(row)) > np.argmax(row == self.sentinels[-1])) for row in whole])

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        if places is None:
            return super().collate(records, None)
        made = []
        for record, place in zip(records, places, strict=True):
            ids, (which, *cuts) = np.asarray(record["input_ids"]), np.random.default_rng((self.seed, place)).random(3)
            row = self.split(ids[ids != IGNORED], cuts) if which < self.rate else ids
            made.append({"input_ids": row, "labels": row})
        return pad_with_mask(made, dict.fromkeys(made[0], IGNORED))

    def split(self, ids: Tokens, cuts: Iterable[float]) -> Tokens:
        """Return a piece with what lies between two cuts in [0, 1) at its end, and an end token.

        Words that are cut may have more tokens, for which the end of the suffix is left out. The piece stays as it is
        where these do not suffice, and where it holds control words, or a part of a letter.
        """
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        first, last = sorted(int(cut * (len(text) + 1)) for cut in cuts)
        parts = [text[:first], text[first:last], text[last:]]
        prefix, middle, suffix = tokenize(self.tokenizer, parts, add_special_tokens=False)
        room = self.length - len(SENTINELS) - 1 - len(prefix) - len(middle)
        if room < 0 or any(word in text for word in ("\ufffd", *SENTINELS)):
            return ids
        before, behind, between, end = ([word] for word in (*self.sentinels, self.tokenizer.eos_token_id))
        return np.concatenate((before, prefix, behind, suffix[:room], between, middle, end))


def causal_lm(recipe: Recipe, corpus: Corpus) -> CausalLM:
    """Make the task of a causal language model by what a corpus holds; ValueError for middles of other than texts."""
    if recipe.text.fim_rate and (corpus.targets or isinstance(corpus, Dialogues)):
        raise ValueError(
            f"text.fim_rate={recipe.text.fim_rate} learns from texts alone, and data={corpus.name!r} have answers that "
            "follow them; leave out text.fim_rate, or the field that names their column"
        )
    if isinstance(corpus, Dialogues):
        return Chat(recipe, corpus)
    if corpus.targets:
        return TargetLM(recipe, corpus)
    return (InfillingLM if recipe.text.fim_rate else CausalLM)(recipe, corpus)
