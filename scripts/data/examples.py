"""Examples of data sets, batches of them, and fingerprints of both."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import torch
from datasets import Dataset, Image
from torch import Tensor

Record = dict[str, Any]
Made = TypeVar("Made")
Batch = dict[str, Tensor]
# The file and row of a record, counted from 1, and the reason why it is invalid.
ORIGIN = {"_file": "string", "_row": "int64", "_invalid": "string"}
ROWS = 1000  # hashed together for a fingerprint
BEGINNING = 2**16  # bytes of a compressed image that are hashed; a changed pixel changes them all the way


class InvalidRecord(Exception):
    """The reason why one record is invalid, in a few words."""


def attempt(make: Callable[..., Made], *arguments: Any) -> Made | InvalidRecord:
    """Call a function on a record, and return its result, or the reason why the record is invalid."""
    try:
        return make(*arguments)
    except InvalidRecord as error:
        return error


class Examples(Protocol):
    """Records by index, as `datasets.Dataset` and `Columns` have them."""

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> list[Record]: ...


class Columns:
    """Examples in memory: tensors of equal length by name, and the `lengths` of padded rows."""

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


def contents(examples: Any) -> Iterator[bytes]:
    """Yield the contents of examples in order, for a fingerprint; images in files by name, size and beginning."""
    if not isinstance(examples, Dataset):
        yield from examples.contents()
        return
    images = [name for name, kind in examples.features.items() if isinstance(kind, Image)]
    for name in images:
        for batch in examples.select_columns(name).iter(ROWS):
            yield "\n".join(map(image_identity, batch[name])).encode()
    for batch in examples.remove_columns(images).with_format("arrow").iter(ROWS):
        # Copied, for slices of a larger table are stored in another way.
        rows = batch.combine_chunks().take(pa.array(range(len(batch)))).replace_schema_metadata()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        yield sink.getvalue().to_pybytes()


def image_identity(value: dict[str, Any]) -> str:
    """Return the hash of an image's bytes, or the name and size of its file and the hash of its beginning."""
    if value["bytes"] is not None:
        return sha256(value["bytes"]).hexdigest()
    path = Path(value["path"])
    with path.open("rb") as file:
        beginning = sha256(file.read(BEGINNING)).hexdigest()
    return f"{path.parent.name}/{path.name} {path.stat().st_size} {beginning}"
