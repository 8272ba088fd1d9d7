"""Induction score: how much each head attends to what came after a token the last time.

Shapes: B batch, N random tokens, H heads, q queries, S keys.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.attention.capture import capture_attention
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.probes.layers import evaluating, without_cache

# Random tokens of a sequence before they are repeated, as in the paper, and sequences.
LENGTH, SEQUENCES = 25, 8
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


@torch.no_grad()
def induction_score(
    model: PreTrainedModel, *, length: int | None = None, sequences: int = SEQUENCES, seed: int = 0
) -> Tensor:
    """Compute the induction score of each head of a causal language model, ours or transformers': (layers, H).

    Sequences of `length` random tokens, none of them special, are repeated once. The score is the mean attention of a
    token of the repetition to the token after its earlier occurrence: 1 for a head that does nothing else, about
    1 / (1.5 length) for one that attends evenly. It takes two layers to find that place by the tokens, for the first
    must tell each token which one stands before it. The length is the paper's, 25, or half of the positions where they
    are fewer.

    One forward of `sequences` rows of 2 length tokens; the weights of the repetition are kept.

    ValueError for a model that is no decoder of texts alone, or whose positions end before the repetition does.

    Source: Olsson et al. 2022, In-context Learning and Induction Heads, prefix matching, https://arxiv.org/abs/2209.11895
    Shapes: (layers, H)
    """
    check_causal(model)
    tokens = repeated_tokens(model, length, sequences, seed)
    with evaluating(model), capture_attention(model, queries=slice(tokens.shape[1] // 2, None)) as captured:
        model(**without_cache(model, {"input_ids": tokens}))
    return torch.stack([repetition_attention(record.weights) for record in captured])


def repetition_attention(weights: Tensor) -> Tensor:
    """Average the attention of a repeated sequence to what came after each of its tokens: (B, H, N, 2 N) -> (H,)."""
    after = weights.float().diagonal(offset=1, dim1=-2, dim2=-1)
    return after.mean((0, 2))


def repeated_tokens(model: Any, length: int | None = None, sequences: int = SEQUENCES, seed: int = 0) -> Tensor:
    """Draw random tokens without special ones, and repeat each sequence once: (B, 2 N).

    Without a length it is the paper's, or what the positions of the model leave room for. ValueError for one that there
    is no room for, and for fewer than two tokens.
    """
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    length = min(LENGTH, (positions or 2 * LENGTH) // 2) if length is None else length
    if length < 2 or (positions is not None and 2 * length > positions):
        raise ValueError(
            f"length={length} random tokens are too few, or do not fit {positions} positions with their repetition; "
            f"give a length from 2 to {LENGTH if positions is None else positions // 2}"
        )
    special = [token for name in SPECIAL for token in token_ids(getattr(config, name, None))]
    allowed = torch.ones(config.vocab_size)
    allowed[[token for token in special if 0 <= token < config.vocab_size]] = 0
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(allowed, sequences * length, replacement=True, generator=generator)
    return drawn.view(sequences, length).repeat(1, 2).to(model.device)


def token_ids(given: int | list[int] | None) -> list[int]:
    """Return the ids of a field that has one, several or none."""
    if given is None:
        return []
    return [given] if isinstance(given, int) else list(given)


def is_causal_language_model(model: Any) -> bool:
    """Return True for a decoder that predicts the next token of a text, with attention weights in every layer."""
    predicts = model.can_generate() and not model.config.is_encoder_decoder and model.main_input_name == "input_ids"
    layers = attention_layers(model) if predicts else []
    return bool(predicts) and all(layer.stack == "decoder" and layer.kind != "gated_delta" for layer in layers)


def check_causal(model: PreTrainedModel) -> None:
    """Raise ValueError for a model whose heads cannot be induction heads, or whose attention cannot be captured."""
    if not is_causal_language_model(model):
        raise ValueError(
            f"model={type(model).__name__} is no causal language model of texts alone with attention weights in every "
            "layer; give one, as QkvDecoderForCausalLM"
        )
