"""Causal sums over tokens in chunks: pairs inside a chunk, and one state for all before it.

Shapes: B batch, ... heads, T tokens, N chunks, C tokens of a chunk, K and V widths of keys and values.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Tokens of a chunk: pairs in it cost its length, states between chunks one over it.
CHUNK_TOKENS = 64
# Numbers in the queries of a segment, whose chunks a CPU computes at once: its intermediate results stay in the cache.
SEGMENT_NUMBERS = 2**18
# Chunks of a group, whose states are summed first.
GROUP_CHUNKS = 8


class DocumentChunks(NamedTuple):
    """Compare the documents packed in a row, whose numbers rise, chunk by chunk; 1 is yes and 0 no.

    `same` (R, 1, 1, N, C, C): are two tokens of a chunk of one document? `reads` (R, 1, 1, N, C, 1): is a token of the
    document that the chunk before ends with? `kept` (R, 1, 1, N, C, 1): of the one that its own chunk ends with?
    `carried` (R, 1, 1, N, N): does an earlier chunk end with the document that the one before this chunk ends with?
    `lasts` (R, 1, 1, 1, 1): do the last two chunks end with one document?
    """

    same: Tensor
    reads: Tensor
    kept: Tensor
    carried: Tensor
    lasts: Tensor

    @classmethod
    def of(cls, documents: Tensor, size: int, dtype: torch.dtype) -> "DocumentChunks":
        """Compare the documents (R, T) of tokens in chunks of `size`."""
        length = documents.shape[1]
        index = torch.arange(-(-length // size) * size, device=documents.device).clamp(max=length - 1)
        chunks = documents[:, index].unflatten(1, (-1, size))[:, None, None]
        last = chunks[..., -1]
        before = torch.cat((last[..., :1] - 1, last[..., :-1]), dim=-1)
        same = chunks[..., None] == chunks[..., None, :]
        carried = (before[..., None] == last[..., None, :]).tril(-1)
        reads, kept = (chunks == before[..., None])[..., None], (chunks == last[..., None])[..., None]
        lasts = (last == before)[..., -1:, None]
        return cls(*(each.to(dtype) for each in (same, reads, kept, carried, lasts)))


class Chunks(NamedTuple):
    """The chunks of queries and keys (B, ..., N, C, K), which of them documents part, and the number of tokens."""

    query: Tensor
    key: Tensor
    documents: DocumentChunks | None
    length: int

    @classmethod
    def of(cls, query: Tensor, key: Tensor, documents: Tensor | None) -> "Chunks":
        """Split queries and keys (B, ..., T, K) of documents (B or 1, T)."""
        length, size = query.shape[-2], chunk_size(query.shape[-2])
        chunks = None if documents is None else DocumentChunks.of(documents, size, query.dtype)
        return cls(split_chunks(query, size), split_chunks(key, size), chunks, length)

    @property
    def size(self) -> int:
        """The number of tokens in a chunk."""
        return self.query.shape[-2]

    @property
    def kept(self) -> Tensor:
        """The keys that later chunks may read: (B, ..., N, C, K)."""
        return self.key if self.documents is None else self.key * self.documents.kept

    def join(self, values: Tensor) -> Tensor:
        """Put chunks in a row again: (B, ..., N, C, V) -> (B, ..., T, V)."""
        return values.flatten(-3, -2)[..., : self.length, :]

    def scores(self) -> Tensor:
        """Multiply queries with the keys up to them: (B, ..., N, C, C)."""
        scores = (self.query @ self.key.transpose(-1, -2)).tril_()
        return scores if self.documents is None else scores * self.documents.same

    def read(self, sums: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Let queries read the sums of all chunks before theirs; return what they read, and the state at the end.

        Documents start from nothing, other tokens from a state.

        Shapes: sums (B, ..., N, K, V), state (B, ..., K, V) -> (B, ..., N, C, V), (B, ..., K, V)
        """
        documents = self.documents
        if documents is None:
            before = sums_before(sums.flatten(-2)).view_as(sums)
            before = before if state is None else before + state.unsqueeze(-3)
            return self.query @ before, before[..., -1, :, :] + sums[..., -1, :, :]
        before = (documents.carried @ sums.flatten(-2)).view_as(sums)
        end = before[..., -1, :, :] * documents.lasts + sums[..., -1, :, :]
        return self.query @ before * documents.reads, end


def sums_before(sums: Tensor) -> Tensor:
    """Sum over all earlier chunks, by groups in (N/8)² + 8 N operations instead of N²: (..., N, X) -> same."""
    count = sums.shape[-2]
    if count <= GROUP_CHUNKS:
        return sum_earlier(sums)
    missing = -count % GROUP_CHUNKS
    groups = (F.pad(sums, (0, 0, 0, missing)) if missing else sums).unflatten(-2, (-1, GROUP_CHUNKS))
    before = sum_earlier(groups) + sum_earlier(groups.sum(-2)).unsqueeze(-2)
    return before.flatten(-3, -2)[..., :count, :]


def sum_earlier(sums: Tensor) -> Tensor:
    """Sum over all earlier rows: (..., N, X) -> same."""
    count = sums.shape[-2]
    return torch.ones(count, count, dtype=sums.dtype, device=sums.device).tril(-1) @ sums


def chunk_size(length: int) -> int:
    """Return the number of tokens in the chunks of a sequence."""
    return min(CHUNK_TOKENS, length)


def segment_tokens(query: Tensor) -> int:
    """Return how many tokens of queries (..., T, K) are computed at once: all of them but on a CPU."""
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return query.shape[-2]
    return max(SEGMENT_NUMBERS // query[..., 0, :].numel() // CHUNK_TOKENS, 1) * CHUNK_TOKENS


def split_chunks(values: Tensor, size: int) -> Tensor:
    """Split tokens into chunks, the last filled up with zeros, contiguous in memory: (..., T, K) -> (..., N, C, K)."""
    missing = -values.shape[-2] % size
    values = F.pad(values, (0, 0, 0, missing)) if missing else values
    return values.unflatten(-2, (-1, size)).contiguous()


def causal_sums(chunks: Chunks, scores: Tensor, value: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum q_i·k_j v_j over j <= i of the same document, after a state; return the sums and the state at the end.

    The state is the sum of k_j v_j^T, of the last document alone. Time grows with T.

    Source: Yang et al. 2024, Gated Linear Attention, §2 (the chunkwise form), https://arxiv.org/abs/2312.06635
    Shapes: scores (B, ..., N, C, C), value (B, ..., T, V), state (B, ..., K, V) -> (B, ..., T, V), (B, ..., K, V)
    """
    value = split_chunks(value, chunks.size)
    earlier, end = chunks.read(chunks.kept.transpose(-1, -2) @ value, state)
    return chunks.join((scores @ value).add_(earlier)), end


def causal_products(chunks: Chunks, scores: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum q_i·k_j over j <= i of the same document, after a state, the sum of keys: `causal_sums` of ones.

    Shapes: scores (B, ..., N, C, C), state (B, ..., K, 1) -> (B, ..., T, 1), (B, ..., K, 1)
    """
    earlier, end = chunks.read(chunks.kept.sum(-2).unsqueeze(-1), state)
    return chunks.join(scores.sum(-1, keepdim=True) + earlier), end
