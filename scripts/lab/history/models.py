"""Build the models to compare, three encoder-decoders as configurations of our families, and the data they learn from.

Shapes: B batch, n letters of a source.
"""

from collections.abc import Callable
from functools import partial
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
# Models are of one size when none has more than that many times the parameters of another.
SAME_SIZE = 1.1


def rnn(width: int, **fields: Any) -> PreTrainedModel:
    """Build an LSTM encoder-decoder."""
    size: dict[str, Any] = {"embedding_size": width, "hidden_size": 13 * width // 8, "attention_size": width}
    config = QkvRecurrentConfig(cell="lstm", vocab_size=VOCABULARY, eos_token_id=END, **size, **fields)
    return QkvRecurrentForConditionalGeneration(config)


def transformer(width: int, position: str = "sinusoidal", **fields: Any) -> PreTrainedModel:
    """Build a Transformer as in 2017, but pre-norm: post-norm does not begin to learn in so little time."""
    size: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": VOCABULARY,
    }
    fields = {"position": position, "norm_first": True, "scale_embedding": True, "initializer_range": 0.06, **fields}
    return QkvEncoderDecoderForConditionalGeneration(QkvEncoderDecoderConfig(eos_token_id=END, **size, **fields))


# Models of one size.
COMPARED: dict[str, Callable[[int], PreTrainedModel]] = {
    # As in 2014, with one vector between encoder and decoder.
    RNN: partial(rnn, attention="none", bidirectional=False),
    # As in 2015: additive attention over a bidirectional encoder.
    ATTENTION: lambda width: rnn(width, attention="additive", encoder_hidden_size=width),
    TRANSFORMER: transformer,
}
# The fourth is there for the claims about its positions; it is larger by their table, as long as the longest source.
ALL: dict[str, Callable[[int], PreTrainedModel]] = {
    **COMPARED,
    LEARNED: partial(transformer, position="learned", max_position_embeddings=1024),
}


def build_models(width: int, seed: int) -> dict[str, PreTrainedModel]:
    """Build all models from one seed; RuntimeError where those that are compared differ in size."""
    models = {}
    for name, build in ALL.items():
        torch.manual_seed(seed)
        models[name] = build(width)
    sizes = [models[name].num_parameters() for name in COMPARED]
    if max(sizes) > SAME_SIZE * min(sizes):
        raise RuntimeError(f"the models have {sizes} parameters, which differ by more than a tenth; change the width")
    return models


def reversals(count: int, length: int, random: torch.Generator) -> dict[str, Tensor]:
    """Draw random letters with an end, and the same in reverse: `input_ids`, `labels` (B, n + 1)."""
    letters = torch.randint(FIRST, VOCABULARY, (count, length), generator=random)
    ends = torch.full((count, 1), END)
    return {"input_ids": torch.cat((letters, ends), 1), "labels": torch.cat((letters.flip(1), ends), 1)}
