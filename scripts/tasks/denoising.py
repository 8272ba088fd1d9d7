"""Denoising: an encoder-decoder restores packed texts whose spans were corrupted as in T5 or in BART.

seqio and fairseq draw from streams of random numbers that follow the order of reading; here each row is corrupted by
its place alone, as in masked language modeling, whatever the number of processes.

Source: span corruption: Raffel et al. 2020, T5, §3.1.4, https://jmlr.org/papers/v21/20-074.html, and its code,
    `random_spans_noise_mask` and `random_spans_helper`. Text infilling and sentence permutation: Lewis et al. 2020,
    BART, §2.2, https://aclanthology.org/2020.acl-main.703
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.collate import IGNORED, pad_with_mask, padded_columns, padding_of
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Batch, Columns, Record
from qkv.scripts.data.tokenization import SEQ2SEQ_TEMPLATE, config_fields, control_words, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.masked_lm import WORDS, TokenPrediction
from qkv.scripts.tasks.seq2seq import SPARE, MultitaskSeq2Seq, Seq2Seq
from qkv.scripts.tasks.task import Task

SENTINELS = 100  # of a tokenizer, as T5 has, unless a row has more spans
Tokens = NDArray[np.int64]
Random = np.random.Generator


def sentinel(number: int) -> str:
    """Return the token that stands for the corrupted span of this number, as T5 spells it."""
    return f"<extra_id_{number}>"


def count_noise(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """Return how many of `length` tokens are corrupted, and in how many spans; neither side is without tokens."""
    noise = min(max(round(length * density), 1), length - 1)
    return noise, min(max(round(noise / mean_span), 1), length - noise)


def whole_length(length: int, density: float, mean_span: float) -> int:
    """Return how many tokens fill `length` ones with a sentinel for each corrupted span; one more would be too many.

    From a density of `mean_span / (1 + mean_span)` on a token may come with a sentinel, and leave one place empty.
    """

    def filled(whole: int) -> int:
        noise, spans = count_noise(whole, density, mean_span)
        return whole - noise + spans

    whole = max(length, 2)
    while filled(whole + 1) <= length:
        whole += 1
    return whole


def segment(count: int, parts: int, random: Random) -> Tokens:
    """Divide `count` tokens into the lengths of `parts` spans, none of them empty; all divisions are equally likely."""
    return np.diff(np.sort(random.permutation(count - 1)[: parts - 1]) + 1, prepend=0, append=count)


def noise_mask(length: int, density: float, mean_span: float, random: Random) -> NDArray[np.bool_]:
    """Mark corrupted tokens (T,): spans alternate, and the first is not corrupted."""
    two = max(length, 2)
    noise, spans = count_noise(two, density, mean_span)
    sizes = np.stack((segment(two - noise, spans, random), segment(noise, spans, random)), axis=1).ravel()
    return (np.repeat(np.arange(2 * spans), sizes) % 2 == 1)[:length]


def replace_spans(tokens: Tokens, mask: NDArray[np.bool_], sentinels: Tokens) -> Tokens:
    """Replace each span that is marked by one sentinel, in their order."""
    first = mask & ~np.append(False, mask[:-1])
    return np.where(first, sentinels[np.cumsum(first) - 1], tokens)[first | ~mask]


def infill(tokens: Tokens, density: float, mean_span: float, mask: int, random: Random) -> Tokens:
    """Replace spans of Poisson lengths by one mask token each, which a span of no tokens inserts.

    The spans have the share `density` of the tokens together, the last of them as much of its length as that allows.
    """
    noise = min(max(round(len(tokens) * density), 1), len(tokens))
    lengths: list[int] = []
    while sum(lengths) < noise:
        lengths.append(min(int(random.poisson(mean_span)), noise - sum(lengths)))
    while len(lengths) > noise:  # or the masks would make the row longer than it was
        lengths.remove(0)
    gaps = np.sort(random.integers(0, len(tokens) - noise + 1, len(lengths)))
    return np.insert(np.delete(tokens, np.repeat(gaps, lengths) + np.arange(noise)), gaps, mask)


def permute_sentences(tokens: Tokens, ends: NDArray[np.bool_], random: Random) -> Tokens:
    """Shuffle the sentences of a row, each up to a token of those that `ends` marks in the vocabulary."""
    sentences = np.split(tokens, np.flatnonzero(ends[tokens[:-1]]) + 1)
    return np.concatenate([sentences[index] for index in random.permutation(len(sentences))])


class Denoising(TokenPrediction):
    """Restore corrupted texts, which are packed end to end, as in T5's pre-training.

    With `spans` the inputs have `text.length` tokens, sentinels among them, and the targets are the corrupted spans;
    with `infilling` the targets have that many, and are the whole text. In training the corruption follows from the
    place of a row; in evaluated splits it never changes.
    """

    kind = "translation"

    def __init__(self, recipe: Recipe, corpus: Corpus) -> None:
        self.corpus, self.text, self.seed = corpus, recipe.text, recipe.seed
        self.has_sentinels = recipe.text.corruption == "spans"
        needs = ("eos",) if self.has_sentinels else ("eos", "mask")
        self.tokenizer = tokenizer_for(recipe, corpus.texts.get("train", []), SEQ2SEQ_TEMPLATE, needs)
        self.start = tokenize(self.tokenizer, [""])[0][:-1]  # such as BART's <s>
        self.end, density, mean_span = self.tokenizer.eos_token_id, recipe.text.noise_density, recipe.text.mean_span
        room = recipe.text.length - len(self.start) - 1
        self.length = whole_length(room, density, mean_span) if self.has_sentinels else room
        _, spans = count_noise(self.length, density, mean_span)
        self.sentinels = self.find_sentinels(spans, recipe.model.init) if self.has_sentinels else np.zeros(0, np.int64)
        words = self.tokenizer.convert_ids_to_tokens([*range(len(self.tokenizer))])
        self.ends = np.array([word.endswith(".") for word in words])
        self.fills = {"input_ids": padding_of(self.tokenizer), "labels": IGNORED}
        splits: dict[str, Any] = {name: self.rows(name) for name in corpus.texts}
        if corpus.stream:
            splits["train"] = corpus.stream(self.examples_of, self.length)
        longest = max(map(len, self.corrupt(np.zeros(self.length, np.int64), np.random.default_rng(0)).values()))
        ids = {"decoder_start_token_id": self.tokenizer.pad_token_id}
        ids["max_position_embeddings"] = max(recipe.text.length, longest) + SPARE
        generation = {"max_new_tokens": longest + SPARE}
        super().__init__(corpus, splits, self.tokenizer, config_fields(self.tokenizer, **ids), generation=generation)

    def find_sentinels(self, count: int, init: str | None) -> Tokens:
        """Return the numbers of the sentinels, which a new model's tokenizer gets as T5's has them: the first is last.

        ValueError for a pretrained model without one for each of `count` spans.
        """
        is_new = init is None and sentinel(count - 1) not in self.tokenizer.get_vocab()
        words = [sentinel(number) for number in range(max(count, SENTINELS) if is_new else count)]
        mend = (
            f"rows of text.length={self.text.length} with text.noise_density={self.text.noise_density} have {count} "
            "spans; give a model that was made by text.corruption=spans, a smaller text.length, or "
            "text.corruption=infilling"
        )
        return np.array(control_words(self.tokenizer, words[::-1], init, mend, lstrip=True)[::-1][:count])

    def rows(self, split: str) -> Columns:
        """Pack the texts of a split; of an evaluated one each row is corrupted once."""
        tokens = np.concatenate(tokenize(self.tokenizer, self.corpus.texts[split], add_special_tokens=False))
        rows = [tokens[first : first + self.length] for first in range(0, len(tokens), self.length)]
        if split == "train":
            return padded_columns({"input_ids": (rows, IGNORED)})
        corrupted = [self.corrupt(row, np.random.default_rng((0, number))) for number, row in enumerate(rows)]
        return padded_columns({name: ([row[name] for row in corrupted], fill) for name, fill in self.fills.items()})

    def examples_of(self, texts: Sequence[str]) -> list[list[Record]]:
        """Return the example of each text of a stream, which packs them."""
        return [[{"input_ids": row}] for row in tokenize(self.tokenizer, texts, add_special_tokens=False)]

    def corrupt(self, row: Tokens, random: Random) -> dict[str, Tokens]:
        """Return the inputs and the targets of a row, with the special tokens around each."""
        density, mean_span = self.text.noise_density, self.text.mean_span
        if self.has_sentinels:
            mask = noise_mask(len(row), density, mean_span, random)
            pair = [replace_spans(row, mask, self.sentinels), replace_spans(row, ~mask, self.sentinels)]
        else:
            shuffled = permute_sentences(row, self.ends, random) if self.text.permute_sentences else row
            pair = [infill(shuffled, density, mean_span, self.tokenizer.mask_token_id, random), row]
        both = [np.concatenate((self.start, tokens, [self.end])) for tokens in pair]
        return dict(zip(self.fills, both, strict=True))

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        if places is None:
            return pad_with_mask(records, self.fills)
        rows = [np.asarray(record["input_ids"]) for record in records]
        made = [self.corrupt(row[row != IGNORED], np.random.default_rng((self.seed, place)))
                for row, place in zip(rows, places, strict=True)]  # fmt: skip
        return pad_with_mask(made, self.fills)

    def prompt(self) -> str:
        words = super().prompt().split()[:WORDS]
        hidden = sentinel(0) if self.has_sentinels else str(self.tokenizer.mask_token)
        return " ".join([*words[:-1], hidden]) if words else ""


def text_to_text(recipe: Recipe, corpus: Corpus) -> Task:
    """Make the task of an encoder-decoder: to restore corrupted texts, or to write targets, of one task or several.

    ValueError for fields of targets where texts are corrupted.
    """
    text = recipe.text
    if text.corruption is None:
        return (MultitaskSeq2Seq if corpus.tasks else Seq2Seq)(recipe, corpus)
    if text.target or text.task or corpus.targets:
        raise ValueError(
            f"text.corruption={text.corruption!r} learns from texts alone, and data={corpus.name!r} are read with "
            "targets; leave out text.corruption, or text.target and text.task, or give other data"
        )
    if text.permute_sentences and text.corruption == "spans":
        raise ValueError("text.permute_sentences=true is for text.corruption=infilling, as in BART; leave out one")
    return Denoising(recipe, corpus)
