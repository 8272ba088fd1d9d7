"""A stand-in for `torch.nn.attention.varlen.varlen_attn`, which runs on CUDA alone: same signature, a loop over documents."""

import torch
from torch import Tensor


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> Tensor:
    """Compute softmax(q k^T * scale) v inside each document: (N, H, K), 2 x (M, G, K) -> (N, H, K).

    As FlashAttention 2.1 and later do, the last query of a document stands at its last key. NaN where pages disagree.
    """
    assert query.dtype == key.dtype == value.dtype and cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert enable_gqa or query.shape[1] == key.shape[1]
    mixed = torch.full_like(query, torch.nan)
    left, right = window_size
    ends, key_ends = cu_seq_q.tolist(), cu_seq_k.tolist()
    assert len(ends) == len(key_ends)
    for start, end, first, last in zip(ends, ends[1:], key_ends, key_ends[1:], strict=False):
        assert end - start <= max_q and last - first <= max_k
        groups = query.shape[1] // key.shape[1]
        keys, values = (each[first:last].repeat_interleave(groups, 1) for each in (key, value))
        scores = torch.einsum("qhk,shk->hqs", query[start:end], keys) * (scale or query.shape[-1] ** -0.5)
        places = torch.arange(end - start)[:, None] + (last - first) - (end - start)
        distance = places - torch.arange(last - first)
        hidden = (distance > left if left >= 0 else distance > len(key)) | (-distance > right if right >= 0 else False)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        mixed[start:end] = torch.einsum("hqs,shk->qhk", weights, values)
    return mixed
