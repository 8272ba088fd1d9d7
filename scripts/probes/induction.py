"""Induction score: each head's attention to the token after the last occurrence of the present one.

Shapes: B batch, N random tokens, H heads, q queries, S keys.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.attention.capture import capture_attention, evaluating, without_cache
from qkv.scripts.attention.layers import attention_layers

# Random tokens of a sequence before its repetition, as in the paper, and sequences.
LENGTH, SEQUENCES = 25, 8
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


@torch.no_grad()
def induction_score(
    model: PreTrainedModel, *, length: int | None = None, sequences: int = SEQUENCES, seed: int = 0
) -> Tensor:
    """Compute the induction score of each head of a causal language model, ours or transformers': (layers, H).

    Sequences of `length` random tokens, none of them special, are repeated once. The score is the mean attention of a
    repeated token to the token after its first occurrence: 1 for a head that does nothing else, about
    1 / (1.5 length) for one that attends evenly. The length is the paper's, 25, or half of the positions where there
    are fewer.

    ValueError for any other model, and for a length that the positions have no room for.

    Source: Olsson et al. 2022, In-context Learning and Induction Heads, prefix matching, https://arxiv.org/abs/2209.11895
    Shapes: (layers, H)
    """
    if not is_causal_language_model(model):
        raise ValueError(
            f"model={type(model).__name__} is no causal language model of texts alone with attention weights in every "
            "layer; give one, as QkvDecoderForCausalLM"
        )
    tokens = repeated_tokens(model, length, sequences, seed)
    with evaluating(model), capture_attention(model, queries=slice(tokens.shape[1] // 2, None)) as captured:
        model(**without_cache(model, {"input_ids": tokens}))
    # Of repeated tokens, the weights of the token after each first occurrence: (B, H, N, 2 N) -> (B, H, N).
    after = [record.weights.float().diagonal(offset=1, dim1=-2, dim2=-1) for record in captured]
    return torch.stack([each.mean((0, 2)) for each in after])


def repeated_tokens(model: Any, length: int | None = None, sequences: int = SEQUENCES, seed: int = 0) -> Tensor:
    """Draw random tokens without special ones, and repeat each sequence once: (B, 2 N).

    ValueError for fewer than two tokens, or for more than the positions have room for.
    """
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    length = min(LENGTH, (positions or 2 * LENGTH) // 2) if length is None else length
    if length < 2 or (positions is not None and 2 * length > positions):
        raise ValueError(
            f"length={length} random tokens are too few, or do not fit {positions} positions with their repetition; "
            f"give a length from 2 to {LENGTH if positions is None else positions // 2}"
        )
    given = [getattr(config, name, None) for name in SPECIAL]
    special = {token for each in given for token in (each if isinstance(each, list) else [each])}
    allowed = torch.tensor([float(token not in special) for token in range(config.vocab_size)])
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(allowed, sequences * length, replacement=True, generator=generator)
    return drawn.view(sequences, length).repeat(1, 2).to(model.device)


def is_causal_language_model(model: Any) -> bool:
    """Tell whether a model predicts the next token of a text, with attention weights in every layer."""
    if not model.can_generate() or model.config.is_encoder_decoder or model.main_input_name != "input_ids":
        return False
    return all(layer.stack == "decoder" and layer.kind != "gated_delta" for layer in attention_layers(model))
