"""How do rows of different lengths make a batch? Padded to the longest of all once, and cut to the longest of each."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from qkv.scripts.training.task import Batch, Columns, Record, stack

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


def cut(records: Sequence[Record], fills: dict[str, int]) -> Batch:
    """A batch in which every column with a filling is cut to its longest row."""
    batch = stack(records)
    for name, fill in fills.items():
        used = (batch[name] != fill).any(0)
        batch[name] = batch[name][:, : int(used.nonzero().max()) + 1 if used.any() else 1]
    return batch


def pieces(row: np.ndarray, length: int) -> list[np.ndarray]:
    """A row cut into pieces of at most that length."""
    return [row[start : start + length] for start in range(0, len(row), length)]
