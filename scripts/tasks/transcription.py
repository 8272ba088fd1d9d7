"""Transcription of recordings: by a decoder that generates tokens, or by CTC with a label for each frame."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from transformers import Wav2Vec2CTCTokenizer

from qkv.scripts.data.collate import IGNORED, pad_rows
from qkv.scripts.data.examples import Batch
from qkv.scripts.data.tokenization import (
    END,
    PAD,
    SEQ2SEQ_TEMPLATE,
    START,
    UNKNOWN,
    config_fields,
    tokenize,
    tokenizer_for,
)  # fmt: skip
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.seq2seq import SPARE, GreedyDecoder
from qkv.scripts.tasks.task import Answer

WORD_DELIMITER = "|"  # of the CTC tokenizers of transformers


class Transcriber(Protocol):
    """Texts as tokens, and a model's transcriptions; `config` are fields of the model's config."""

    tokenizer: Any
    config: dict[str, Any]

    def labels(self, texts: Sequence[str]) -> Tensor:
        """Return the tokens of texts, padded with what is no target."""

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the transcriptions of a batch, and the references."""

    def options(self, batch: Batch) -> dict[str, Any]:
        """Return the options with which a pipeline gives the same."""


class Seq2SeqTranscriber:
    """A decoder generates tokens greedily."""

    def __init__(self, recipe: Recipe, texts: Mapping[str, Sequence[str]]) -> None:
        self.tokenizer = tokenizer_for(recipe, texts["train"], SEQ2SEQ_TEMPLATE)
        self.length = recipe.text.length
        references = [text for split in texts.values() for text in split]
        inputs = ("input_features", "attention_mask")
        self.decoder = GreedyDecoder(self.tokenizer, references, self.length + SPARE, inputs)
        self.config = self.decoder.config

    def labels(self, texts: Sequence[str]) -> Tensor:
        """Return the tokens of texts and their end, truncated to `text.length`."""
        return pad_rows(tokenize(self.tokenizer, texts, truncation=True, max_length=self.length), IGNORED)

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return what the model generates, and the references."""
        return self.decoder.answer(model, outputs, batch)

    def options(self, batch: Batch) -> dict[str, Any]:
        """Return the options of greedy decoding, for a pipeline would search with beams."""
        return {"max_new_tokens": self.decoder.limit(batch), "num_beams": 1}


class CTCTranscriber:
    """A character or the blank for each frame; equal labels in a row are one character."""

    def __init__(self, recipe: Recipe, texts: Mapping[str, Sequence[str]]) -> None:
        if recipe.text.tokenizer != "characters":
            raise ValueError(
                f"text.tokenizer={recipe.text.tokenizer!r} is not for {recipe.model.architecture}, which labels frames "
                "with characters; set text.tokenizer=characters"
            )
        self.tokenizer = ctc_tokenizer(texts["train"])
        self.references = [text for split in texts.values() for text in split]
        # A text too long for its recording has no alignment and an infinite loss.
        self.config = config_fields(self.tokenizer, ctc_zero_infinity=True)

    def labels(self, texts: Sequence[str]) -> Tensor:
        """Return the characters of texts."""
        return pad_rows(tokenize(self.tokenizer, texts), IGNORED)

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the most probable label of each frame, equal ones in a row joined, and the references."""
        best = outputs.logits.argmax(-1)
        real = model.base_model.padding_mask(batch["attention_mask"], outputs.logits)
        best = best.where(real.bool(), self.tokenizer.pad_token_id)
        texts = self.tokenizer.batch_decode(best.tolist())  # special tokens too, as in pipelines
        return [(text, self.references[index]) for text, index in zip(texts, batch["_target"].tolist(), strict=True)]

    def options(self, batch: Batch) -> dict[str, Any]:
        """Return no options."""
        return {}


def ctc_tokenizer(texts: Sequence[str]) -> Wav2Vec2CTCTokenizer:
    """Return a tokenizer of the characters that occur in texts; padding is the blank."""
    words = (PAD, END, START, UNKNOWN, WORD_DELIMITER, *sorted(set().union(*texts) - {" ", WORD_DELIMITER}))
    special = {"pad_token": PAD, "eos_token": END, "bos_token": START, "unk_token": UNKNOWN}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "vocab.json"
        path.write_text(json.dumps({word: index for index, word in enumerate(words)}), encoding="utf-8")
        return Wav2Vec2CTCTokenizer(str(path), word_delimiter_token=WORD_DELIMITER, **special)
