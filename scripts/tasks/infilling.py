"""Fill in the middle: a document is split into prefix, middle and suffix, and the middle learned behind both.

Documents are split at letters, in the rows that a model reads (context level), so that tokens that a cursor cuts are
learned, too. Half of them begin with the prefix (PSM), and half with the suffix (SPM, whose prefix and middle are one).

Source: Bavarian et al. 2022, Efficient Training of Language Models to Fill in the Middle, §3 and appendix D (SPM,
    variant 2), https://arxiv.org/abs/2207.14255
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.collate import packed_row
from qkv.scripts.data.examples import Record
from qkv.scripts.data.tokenization import tokenize
from qkv.scripts.recipes.schema import Recipe

PREFIX, SUFFIX, MIDDLE = SENTINELS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TYPED = re.compile(f"({'|'.join(map(re.escape, SENTINELS))})")
PROBE = "def f(x):\n    return  x[0] + 1  # one\n"  # has letters that some tokenizers lose: spaces, line ends
PSM = 0.5  # of the split documents


@dataclass
class Infilling:
    """Split the share `text.fim_rate` of the documents in packed rows; draws follow from the seed and a row's place.

    `texts` are some that the tokenizer has to write as they are.
    """

    tokenizer: Any
    recipe: Recipe
    texts: Sequence[str]

    def __post_init__(self) -> None:
        check_lossless(self.tokenizer, self.texts)
        self.numbers = add_sentinels(self.tokenizer, self.recipe.model.init)

    def row(self, record: Record, place: int) -> Record:
        """Return a packed row, with some of its documents split."""
        ids, positions, labels = (np.asarray(record[name]) for name in ("input_ids", "position_ids", "labels"))
        random, starts = np.random.default_rng((self.recipe.seed, place)), np.flatnonzero(positions == 0)
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
        if draws[0] >= self.recipe.text.fim_rate or "\ufffd" in text:
            return ids
        first, last = sorted(int(draw * (len(text) + 1)) for draw in draws[2:])
        parts = tokenize(self.tokenizer, [text[:first], text[first:last], text[last:]], add_special_tokens=False)
        prefix, middle, suffix = (part.tolist() for part in parts)
        room = len(ids) - len(middle) - len(SENTINELS) - 1
        if room < 0:
            return ids
        suffix = suffix[: max(room - len(prefix), 0)]
        prefix = prefix[max(len(prefix) - room, 0) :]
        before, behind, between = self.numbers
        if draws[1] < PSM:
            return [before, *prefix, behind, *suffix, between, *middle, end]
        return [before, behind, *suffix, between, *prefix, *middle, end]


def check_lossless(tokenizer: Any, texts: Sequence[str]) -> None:
    """Raise ValueError for a tokenizer that loses letters of some texts, such as spaces and line ends."""
    for ids, text in zip(tokenize(tokenizer, texts, add_special_tokens=False), texts, strict=True):
        if tokenizer.decode(ids, clean_up_tokenization_spaces=False) != text:
            raise ValueError(
                f"text.fim_rate splits texts between letters, and the tokenizer loses some of {text[:40]!r}; take "
                "text.tokenizer=bpe"
            )


def add_sentinels(tokenizer: Any, init: str | None) -> list[int]:
    """Return the numbers of the control tokens, which the tokenizer of a new model gets.

    ValueError where a pretrained model lacks them.
    """
    if init is not None and (lacking := [word for word in SENTINELS if word not in tokenizer.get_vocab()]):
        raise ValueError(
            f"text.fim_rate learns with {lacking[0]}, which the tokenizer of init={init!r} lacks; leave out init, or "
            "give a model that has learned with it"
        )
    tokenizer.add_special_tokens({"extra_special_tokens": list(SENTINELS)})
    tokenizer.split_special_tokens = False  # a prompt holds them
    return list(tokenizer.convert_tokens_to_ids(list(SENTINELS)))


def infilling_tokens(tokenizer: Any, prompt: str) -> list[int]:
    """Return the tokens of a prompt with the control tokens of infilling, which nothing else in it is."""
    parts = TYPED.split(prompt)
    first, *rows = (row.tolist() for row in tokenize(tokenizer, parts[::2], add_special_tokens=False))
    words = tokenizer.convert_tokens_to_ids(parts[1::2])
    return [*first, *(each for word, row in zip(words, rows, strict=True) for each in (word, *row))]
