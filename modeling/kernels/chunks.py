"""Causal sums over tokens in chunks: pairs inside a chunk, and one state for all before it.

Shapes: B batch, ... heads, T tokens, N chunks, C tokens of a chunk, K and V widths of keys and values.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Tokens of a chunk: pairs in it cost its length, states between chunks one over it.
CHUNK = 64


class DocumentChunks(NamedTuple):
    """Compare the documents packed in a row, whose numbers rise, chunk by chunk.

    `same` (R, 1, 1, N, C, C) is 1 for pairs of one document; `reads` (R, 1, 1, N, C, 1) for tokens of the document that
    the chunk before ends with, `kept` (R, 1, 1, N, C, 1) for those of the document that their own chunk ends with;
    `carried` (R, 1, 1, N, N) where what a later chunk ends with is the document that an earlier one ended with.
    """

    same: Tensor
    reads: Tensor
    kept: Tensor
    carried: Tensor

    @classmethod
    def of(cls, documents: Tensor, size: int, dtype: torch.dtype) -> "DocumentChunks":
        """Compare the documents (R, T) of tokens in chunks of `size`."""
        length = documents.shape[1]
        index = torch.arange(-(-length // size) * size, device=documents.device).clamp(max=length - 1)
        chunks = documents[:, index].unflatten(1, (-1, size))[:, None, None]
        last = chunks[..., -1]
        before = torch.cat((last[..., :1] - 1, last[..., :-1]), dim=-1)
        same = chunks[..., None] == chunks[..., None, :]
        carried = (last[..., None] == last[..., None, :]).tril()
        reads, kept = (chunks == before[..., None])[..., None], (chunks == last[..., None])[..., None]
        return cls(same.to(dtype), reads.to(dtype), kept.to(dtype), carried.to(dtype))


def chunk_size(length: int) -> int:
    """Return the number of tokens in a chunk of a sequence."""
    return min(CHUNK, length)


def split_chunks(values: Tensor, size: int) -> Tensor:
    """Split tokens into chunks, the last filled up with zeros: (..., T, K) -> (..., N, C, K)."""
    missing = -values.shape[-2] % size
    values = F.pad(values, (0, 0, 0, missing)) if missing else values
    return values.unflatten(-2, (-1, size))


def causal_sums(
    query: Tensor, key: Tensor, value: Tensor, documents: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum q_i·k_j v_j over j <= i of the same document, after a state; return the sums and the state at the end.

    The state is the sum of k_j v_j^T. Time grows with T.

    Source: Yang et al. 2024, Gated Linear Attention, §2 (the chunkwise form), https://arxiv.org/abs/2312.06635
    Shapes: query and key (B, ..., T, K), value (B, ..., T, V), documents (B or 1, T), state (B, ..., K, V)
        -> (B, ..., T, V), (B, ..., K, V)
    """
    length, size = query.shape[-2], chunk_size(query.shape[-2])
    query, key, value = (split_chunks(each, size) for each in (query, key, value))
    scores = (query @ key.transpose(-1, -2)).tril()
    if documents is None:
        ends = (key.transpose(-1, -2) @ value).cumsum(-3)
    else:
        chunks = DocumentChunks.of(documents, size, query.dtype)
        scores, query = scores * chunks.same, query * chunks.reads
        sums = (key * chunks.kept).transpose(-1, -2) @ value
        ends = (chunks.carried @ sums.flatten(-2)).view_as(sums)
    if state is not None:
        ends = ends + state.unsqueeze(-3)
    first = torch.zeros_like(ends[..., 0, :, :]) if state is None else state
    before = torch.cat((first.unsqueeze(-3), ends[..., :-1, :, :]), dim=-3)
    mixed = scores @ value + query @ before
    return mixed.flatten(-3, -2)[..., :length, :], ends[..., -1, :, :]
