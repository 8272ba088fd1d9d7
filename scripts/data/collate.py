"""How do rows of different lengths make a batch? Padded to the longest of all once, and cut to the longest of each."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from qkv.scripts.tasks.task import Batch, Columns, Record

IGNORED = -100


def table(rows: Sequence[np.ndarray], fill: int) -> torch.Tensor:
    """Rows as one table, filled up at the end."""
    lengths = np.array([len(row) for row in rows])
    found = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    found[np.arange(found.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(found)


def padded(columns: Mapping[str, tuple[Sequence[np.ndarray], int]], **others: Sequence[int]) -> Columns:
    """Examples of columns of rows, each with what fills it up, and of columns of numbers."""
    lengths = np.sum([[len(row) for row in rows] for rows, _ in columns.values()], axis=0)
    tables = {name: table(rows, fill) for name, (rows, fill) in columns.items()}
    numbers = {name: torch.as_tensor(np.asarray(values, dtype=np.int64)) for name, values in others.items()}
    return Columns({**tables, **numbers}, lengths.tolist())


def cut(records: Sequence[Record], fills: Mapping[str, int]) -> Batch:
    """A batch in which every column with a filling is as wide as its longest row; the others have one shape."""
    batch = {}
    for name in records[0]:
        column = [torch.as_tensor(record[name]) for record in records]
        batch[name] = narrow(column, fills[name]) if name in fills else torch.stack(column)
    return batch


def narrow(rows: Sequence[torch.Tensor], fill: int) -> torch.Tensor:
    """Rows, filled up already or not, as a table without columns that hold nothing but filling."""
    found = pad_sequence(list(rows), batch_first=True, padding_value=fill)
    used = (found != fill).any(0)
    return found[:, : int(used.nonzero().max()) + 1 if used.any() else 1]


def attended(records: Sequence[Record], places: Sequence[int] | None, fills: Mapping[str, int]) -> Batch:
    """A batch as `cut` makes it, and which of its `input_ids` are no filling."""
    batch = cut(records, fills)
    return {**batch, "attention_mask": (batch["input_ids"] != fills["input_ids"]).long()}


def pieces(row: np.ndarray, length: int) -> list[np.ndarray]:
    """A row cut into pieces of at most that length."""
    return [row[start : start + length] for start in range(0, len(row), length)]
