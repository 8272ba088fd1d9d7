"""A stand-in for `flex_attention`, which has no gradients on a CPU: same signature, and it reads the listed blocks alone."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_mask


def listed(counts: Tensor, indices: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Return the pairs in the blocks that are listed for each block of queries: (R, 1, N), (R, 1, N, M) -> (R, 1, T, S)."""
    used = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    blocks = torch.zeros_like(used).scatter(-1, indices.long(), used)
    return blocks.repeat_interleave(sizes[0], dim=-2).repeat_interleave(sizes[1], dim=-1)


def seen_pairs(mask: BlockMask, batch: int) -> Tensor:
    """Return the pairs that a kernel sees: of a full block all, of another those of the predicate."""
    queries, keys = mask.seq_lengths
    own = create_mask(mask.mask_mod, batch, 1, queries, keys, mask.kv_indices.device)
    partly = listed(mask.kv_num_blocks, mask.kv_indices, mask.BLOCK_SIZE)[..., :queries, :keys]
    full = listed(mask.full_kv_num_blocks, mask.full_kv_indices, mask.BLOCK_SIZE)[..., :queries, :keys]
    return own & partly | full


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, *, block_mask: BlockMask, scale: float, enable_gqa: bool
) -> Tensor:
    """Compute softmax(q k^T * scale) v over the pairs that are seen, 0 where a query sees none.

    Shapes: (B, H, T, K), 2 x (B, G, S, K) -> (B, H, T, K)
    """
    assert query.dtype == key.dtype == value.dtype
    groups = query.shape[1] // key.shape[1]
    assert enable_gqa == (groups > 1)
    assert block_mask.seq_lengths == (query.shape[2], key.shape[2])
    seen = seen_pairs(block_mask, len(query))
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~seen, torch.finfo(query.dtype).min)
    return scores.softmax(-1) * seen @ value
