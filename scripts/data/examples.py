"""Examples and batches: what data sets give, tasks collate and the training loop reads."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Record = dict[str, Any]
Made = TypeVar("Made")
Batch = dict[str, Tensor]
# The file and row of a record, counted from 1, and the reason why it is invalid.
ORIGIN = {"_file": "string", "_row": "int64", "_invalid": "string"}


class InvalidRecord(Exception):
    """The reason why one record is invalid, in a few words."""


def attempt(make: Callable[..., Made], *arguments: Any) -> Made | InvalidRecord:
    """Return what is made of a record, or the reason why it is invalid."""
    try:
        return make(*arguments)
    except InvalidRecord as error:
        return error


class Examples(Protocol):
    """Records by index, as `datasets.Dataset` and `Columns` have them."""

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> list[Record]: ...


class Columns:
    """Examples in memory: tensors of equal length by name, and in `lengths` those of rows that were padded."""

    def __init__(self, columns: Batch, lengths: Sequence[int] | None = None) -> None:
        self.columns = columns
        self.lengths = lengths

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        return [{name: column[index] for name, column in self.columns.items()} for index in indices]

    def select(self, indices: Any) -> "Columns":
        """Return the examples of some indices, or of a slice."""
        return Columns({name: column[indices] for name, column in self.columns.items()})

    def contents(self) -> Iterator[bytes]:
        """Yield every value, and how it is stored, for a fingerprint."""
        for column, values in self.columns.items():
            yield f"{column} {values.dtype} {tuple(values.shape)}".encode()
            yield values.numpy().tobytes()


def stack(records: Sequence[Record], places: Sequence[int] | None = None) -> Batch:
    """Stack records whose values have one shape into a batch."""
    return {name: torch.stack([torch.as_tensor(record[name]) for record in records]) for name in records[0]}


def model_inputs(batch: Batch) -> Batch:
    """Return the inputs of the model: names that begin with an underscore are for scoring."""
    return {name: value for name, value in batch.items() if not name.startswith("_")}
