"""Who is compared? Three encoder-decoders as configurations of our families, and the letters that they turn around.

Shapes: B batch, n letters of a source.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv import (
    QkvEncoderDecoderConfig,
    QkvEncoderDecoderForConditionalGeneration,
    QkvRecurrentConfig,
    QkvRecurrentForConditionalGeneration,
)

RNN, ATTENTION, TRANSFORMER, LEARNED = "LSTM", "LSTM + attention", "Transformer", "Transformer, learned positions"
START, END, FIRST = 0, 1, 2
LETTERS = 26
VOCABULARY = FIRST + LETTERS
# Models of which one has that many times the parameters of another are no longer of one size.
ALIKE = 1.1


def rnn(width: int) -> PreTrainedModel:
    """One vector between reading and writing, as in 2014."""
    config = QkvRecurrentConfig(
        cell="lstm", attention="none", bidirectional=False, vocab_size=VOCABULARY,
        embedding_size=width, hidden_size=13 * width // 8, attention_size=width, eos_token_id=END,
    )  # fmt: skip
    return QkvRecurrentForConditionalGeneration(config)


def attentive(width: int) -> PreTrainedModel:
    """Additive attention over what two directions have read, as in 2015."""
    size: dict[str, Any] = {"hidden_size": 13 * width // 8, "encoder_hidden_size": width, "attention_size": width}
    config = QkvRecurrentConfig(
        cell="lstm", attention="additive", vocab_size=VOCABULARY, embedding_size=width, eos_token_id=END, **size
    )
    return QkvRecurrentForConditionalGeneration(config)


def transformer(width: int, **words: Any) -> PreTrainedModel:
    """Attention alone, as in 2017, but with norms in front: post-norm does not begin to learn in so little time."""
    start: dict[str, Any] = {
        "position": "sinusoidal",
        "norm_first": True,
        "scale_embedding": True,
        "initializer_range": 0.06,
        **words,
    }
    shape: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": VOCABULARY,
    }
    config = QkvEncoderDecoderConfig(eos_token_id=END, **shape, **start)
    return QkvEncoderDecoderForConditionalGeneration(config)


def learned(width: int) -> PreTrainedModel:
    """The same with a table of positions, which has a row for each letter of the longest text that is asked for."""
    return transformer(width, position="learned", max_position_embeddings=1024)


# The fourth learns along, for what is said of its positions; it is larger by their table.
CONTENDERS: dict[str, Callable[[int], PreTrainedModel]] = {
    RNN: rnn,
    ATTENTION: attentive,
    TRANSFORMER: transformer,
}
ALL = {**CONTENDERS, LEARNED: learned}


def built(width: int, seed: int) -> dict[str, PreTrainedModel]:
    """All of them from one seed; RuntimeError where the contenders are not of one size."""
    found = {}
    for name, build in ALL.items():
        torch.manual_seed(seed)
        found[name] = build(width)
    sizes = [found[name].num_parameters() for name in CONTENDERS]
    if max(sizes) > ALIKE * min(sizes):
        raise RuntimeError(f"the models have {sizes} parameters, which differ by more than a tenth; change the width")
    return found


def reversals(count: int, length: int, random: torch.Generator) -> dict[str, Tensor]:
    """Random letters with an end, and the same from last to first: `input_ids`, `labels` (B, n + 1)."""
    letters = torch.randint(FIRST, VOCABULARY, (count, length), generator=random)
    ends = torch.full((count, 1), END)
    return {"input_ids": torch.cat((letters, ends), 1), "labels": torch.cat((letters.flip(1), ends), 1)}
