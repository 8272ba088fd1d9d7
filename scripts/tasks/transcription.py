"""How does a model say what it hears? As a decoder that writes, or with a label for each moment."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from transformers import Wav2Vec2CTCTokenizer

from qkv.scripts.data.collate import IGNORED, table
from qkv.scripts.data.tokenization import AFTER, END, PAD, START, UNKNOWN, fields, ids, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.seq2seq import SPARE, Writer
from qkv.scripts.tasks.task import Answer, Batch

BETWEEN = "|"  # words, as the CTC tokenizers of transformers write it


class Reading(Protocol):
    """Texts as tokens, and what a model says in them; `config` are fields of the model's config."""

    tokenizer: Any
    config: dict[str, Any]

    def labels(self, texts: Sequence[str]) -> Tensor:
        """The tokens of texts, filled up with what is no target."""

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """What the model says, and what was said."""

    def options(self, batch: Batch) -> dict[str, Any]:
        """With which a pipeline says the same."""


class Dictation:
    """A decoder writes token after token, always the likeliest, until it writes that the text ends."""

    def __init__(self, recipe: Recipe, texts: Mapping[str, Sequence[str]]) -> None:
        self.tokenizer = tokenizer_for(recipe, texts["train"], AFTER)
        self.length = recipe.text.length
        wanted = [text for split in texts.values() for text in split]
        self.writer = Writer(self.tokenizer, wanted, self.length + SPARE, ("input_features", "attention_mask"))
        start = self.tokenizer.pad_token_id
        self.config = {**fields(self.tokenizer), "decoder_start_token_id": start}

    def labels(self, texts: Sequence[str]) -> Tensor:
        """The tokens of texts and their end, as many as `text.length`."""
        return table(ids(self.tokenizer, texts, truncation=True, max_length=self.length), IGNORED)

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """What is written by the model alone."""
        return self.writer.answer(model, outputs, batch)

    def options(self, batch: Batch) -> dict[str, Any]:
        """Not as many beams as it would take."""
        return {"max_new_tokens": self.writer.room(batch), "num_beams": 1}


class Labelling:
    """A character or nothing at each moment: what stays the same from one to the next is one character."""

    def __init__(self, recipe: Recipe, texts: Mapping[str, Sequence[str]]) -> None:
        if recipe.text.tokenizer != "characters":
            raise ValueError(
                f"text.tokenizer={recipe.text.tokenizer!r} is not for {recipe.architecture}, which labels moments with "
                "characters; set text.tokenizer=characters"
            )
        self.tokenizer = characters(texts["train"])
        self.wanted = [text for split in texts.values() for text in split]
        # A text too long for its sound has no alignment at all: it teaches nothing, and ends no training.
        self.config = {**fields(self.tokenizer), "ctc_zero_infinity": True}

    def labels(self, texts: Sequence[str]) -> Tensor:
        """The characters of texts."""
        return table(ids(self.tokenizer, texts), IGNORED)

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """The likeliest label of each moment that is no padding, the same ones in a row taken together."""
        best = outputs.logits.argmax(-1)
        real = model.base_model.padding_mask(batch["attention_mask"], outputs.logits)
        best = best.where(real.bool(), self.tokenizer.pad_token_id)
        texts = self.tokenizer.batch_decode(best.tolist())  # with what else is no character, as pipelines have it
        return [(text, self.wanted[index]) for text, index in zip(texts, batch["_target"].tolist(), strict=True)]

    def options(self, batch: Batch) -> dict[str, Any]:
        """None."""
        return {}


def characters(texts: Sequence[str]) -> Wav2Vec2CTCTokenizer:
    """The characters that occur in texts; padding is the blank."""
    words = (PAD, END, START, UNKNOWN, BETWEEN, *sorted(set().union(*texts) - {" ", BETWEEN}))
    special = {"pad_token": PAD, "eos_token": END, "bos_token": START, "unk_token": UNKNOWN}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "vocab.json"
        path.write_text(json.dumps({word: index for index, word in enumerate(words)}), encoding="utf-8")
        return Wav2Vec2CTCTokenizer(str(path), word_delimiter_token=BETWEEN, **special)


# How what is heard is said, by the end of an architecture's name.
READINGS: dict[str, type[Dictation | Labelling]] = {"ForSpeechSeq2Seq": Dictation, "ForCTC": Labelling}


def reading_of(recipe: Recipe) -> type[Dictation | Labelling]:
    """How the recipe's architecture says what it hears; ValueError for one that does not, and for a stream."""
    found = next((kind for ending, kind in READINGS.items() if recipe.architecture.endswith(ending)), None)
    if found is None:
        raise ValueError(
            f"architecture={recipe.architecture!r} does not hear the recordings of data={recipe.data!r}; take one that "
            f"ends in {', '.join(READINGS)}"
        )
    if recipe.streaming:
        raise ValueError("recordings are listened to before the training, which is no stream; leave out streaming=true")
    return found
