"""Is this the same data as then? Hashes of what examples hold, wherever they lie."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, Image

# Rows hashed together.
ROWS = 1000


def contents(examples: Any) -> Iterator[bytes]:
    """What examples hold, in order; TypeError for those that do not say."""
    if isinstance(examples, Dataset):
        yield from of_table(examples)
    elif hasattr(examples, "contents"):
        yield from examples.contents()
    else:
        raise TypeError(f"{type(examples).__name__} has no fingerprint: give it a method contents()")


def of_table(table: Dataset) -> Iterator[bytes]:
    """The rows of a table; pictures that lie in files by their names and sizes, for there may be millions."""
    pictures = [name for name, kind in table.features.items() if isinstance(kind, Image)]
    for name in pictures:
        for start in range(0, len(table), ROWS):
            yield "\n".join(map(of_picture, table[start : start + ROWS][name])).encode()
    for batch in table.remove_columns(pictures).with_format("arrow").iter(ROWS):
        # Taken anew, for what was cut out of a larger table is stored in another way.
        rows = batch.combine_chunks().take(pa.array(range(len(batch)))).replace_schema_metadata()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        yield sink.getvalue().to_pybytes()


def of_picture(value: dict[str, Any]) -> str:
    """A picture by its bytes, or the name and size of its file."""
    if value["bytes"] is not None:
        return sha256(value["bytes"]).hexdigest()
    path = Path(value["path"])
    return f"{path.parent.name}/{path.name} {path.stat().st_size}"
