"""Collate rows of different lengths: padded to a rectangle, or packed end to end.

Padding to the longest row of a batch is `tokenizer.pad`'s work too; here rows lie padded in one tensor already, labels
have a padding value of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from qkv.scripts.data.examples import Batch, Columns, Record

IGNORED = -100  # label of tokens without a target
Tokens = Sequence[int]


def pad_rows(rows: Sequence[np.ndarray], fill: int) -> torch.Tensor:
    """Pad rows of integers at the end to one tensor."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(padded)


def padded_columns(columns: Mapping[str, tuple[Sequence[np.ndarray], int]], **numbers: Sequence[int]) -> Columns:
    """Make examples of columns of rows, each with its padding value, and of columns of numbers."""
    lengths = np.sum([[len(row) for row in rows] for rows, _ in columns.values()], axis=0)
    tensors = {name: pad_rows(rows, fill) for name, (rows, fill) in columns.items()}
    tensors |= {name: torch.as_tensor(np.asarray(values, dtype=np.int64)) for name, values in numbers.items()}
    return Columns(tensors, lengths.tolist())


def pad_batch(records: Sequence[Record], fills: Mapping[str, int]) -> Batch:
    """Make a batch whose columns with a padding value are as wide as their longest row; others have one shape."""
    batch = {}
    for name in records[0]:
        column = [torch.as_tensor(record[name]) for record in records]
        batch[name] = trim(column, fills[name]) if name in fills else torch.stack(column)
    return batch


def trim(rows: Sequence[torch.Tensor], fill: int) -> torch.Tensor:
    """Join rows, padded or not, and cut the columns of padding at the end."""
    padded = pad_sequence(list(rows), batch_first=True, padding_value=fill)
    used = (padded != fill).any(0)
    return padded[:, : int(used.nonzero().max()) + 1 if used.any() else 1]


def pad_with_mask(records: Sequence[Record], fills: Mapping[str, int]) -> Batch:
    """Make a batch as `pad_batch` does, with the attention mask of its `input_ids`."""
    batch = pad_batch(records, fills)
    real = batch["input_ids"] != fills["input_ids"]
    return {**batch, "input_ids": batch["input_ids"].clamp(min=0), "attention_mask": real.long()}


def in_one_row(batch: Batch) -> Batch:
    """Put packed rows behind each other, with the boundaries of their documents, which an accelerator need not find."""
    flat = {name: each.reshape(1, -1) for name, each in batch.items()}
    starts = (flat["position_ids"][0] == 0).nonzero()[:, 0].int()
    ends = torch.cat((starts, starts.new_tensor([flat["input_ids"].numel()])))
    return {**flat, "cu_seq_lens_q": ends, "cu_seq_lens_k": ends}


def padding_of(tokenizer: Any) -> int:
    """Return the value that pads rows: the pad token, or no token where it ends texts, too, and would be cut off."""
    return IGNORED if tokenizer.pad_token_id == tokenizer.eos_token_id else tokenizer.pad_token_id


class Packer:
    """Pack documents into rows of `length` tokens as they come; `waiting` holds the row that is not full."""

    def __init__(self, length: int, waiting: Iterable[Tokens] = ()) -> None:
        self.length = length
        self.waiting = [list(document) for document in waiting]

    def add(self, document: Tokens) -> list[Record]:
        """Return the rows that this document fills."""
        rows = []
        left = list(document)
        while left:
            room = self.length - sum(map(len, self.waiting))
            self.waiting.append(left[:room])
            left = left[room:]
            if len(self.waiting[-1]) == room:
                rows.append(packed_row(self.waiting, self.length))
                self.waiting = []
        return rows

    def rest(self) -> list[Record]:
        """Return the last row, padded, unless it is empty."""
        return [packed_row(self.waiting, self.length)] if self.waiting else []


def pack(documents: Iterable[Tokens], length: int) -> Iterator[Record]:
    """Pack documents end to end into rows of `length` tokens; only the last row is padded, and no token is lost.

    `position_ids` restart with every document, by which the model keeps documents apart; the part of a document that
    goes on in the next row is one of its own there. `labels` are -100 at the first token of each document, which
    nothing predicts, and in padding.
    """
    packer = Packer(length)
    for document in documents:
        yield from packer.add(document)
    yield from packer.rest()


def pack_whole(documents: Iterable[tuple[Any, Any]], length: int) -> list[Record]:
    """Pack documents of at most `length` tokens, each with its learned tokens, into rows, and none into two of them."""
    rows: list[list[tuple[Any, Any]]] = [[]]
    for document in documents:
        if sum(len(tokens) for tokens, _ in rows[-1]) + len(document[0]) > length:
            rows.append([])
        rows[-1].append(document)
    return [packed_row([ids for ids, _ in row], length, [learned for _, learned in row]) for row in rows if row]


def packed_row(documents: Sequence[Tokens], length: int, learned: Sequence[Sequence[bool]] | None = None) -> Record:
    """Make one row, all of whose tokens are learned or some; its padding is a separate document without targets."""
    ids = np.concatenate([np.asarray(document, dtype=np.int64) for document in documents])
    missing = length - len(ids)
    sizes = [*map(len, documents), *([missing] if missing else [])]
    positions = np.concatenate([np.arange(size) for size in sizes])
    ids = np.pad(ids, (0, missing))
    target = (positions > 0) & (np.arange(length) < length - missing)
    if learned is not None:
        target &= np.pad(np.concatenate([np.asarray(each, dtype=bool) for each in learned]), (0, missing))
    return {"input_ids": ids, "position_ids": positions, "labels": np.where(target, ids, -100)}
