"""How do documents of any length fill rows of one length? End to end, each kept to itself by positions that restart.

Nothing is padded but the end of the last row, and no token is lost. A document that meets the end of a row goes on in
the next as one of its own: what stands before it is out of sight there, as is every other document.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from qkv.scripts.tasks.task import Record

Tokens = Sequence[int]


class Packer:
    """Rows of `length` tokens, made as documents come; `waiting` are the documents of the row that is not full."""

    def __init__(self, length: int, waiting: Iterable[Tokens] = ()) -> None:
        self.length = length
        self.waiting = [list(document) for document in waiting]

    def add(self, document: Tokens) -> list[Record]:
        """The rows that this document fills."""
        rows = []
        left = list(document)
        while left:
            room = self.length - sum(map(len, self.waiting))
            self.waiting.append(left[:room])
            left = left[room:]
            if len(self.waiting[-1]) == room:
                rows.append(row(self.waiting, self.length))
                self.waiting = []
        return rows

    def rest(self) -> list[Record]:
        """The row that is not full, padded, if there is one."""
        return [row(self.waiting, self.length)] if self.waiting else []


def pack(documents: Iterable[Tokens], length: int) -> Iterator[Record]:
    """Rows of `length` tokens that hold the documents one after the other; the last is padded.

    Every token stands in one row, in order. `position_ids` begin again with every document, by which the model keeps
    documents apart. `labels` are -100 where nothing is to be predicted: at the beginning of documents and in padding.
    """
    packer = Packer(length)
    for document in documents:
        yield from packer.add(document)
    yield from packer.rest()


def row(documents: Sequence[Tokens], length: int) -> Record:
    """One row; what is padded is a document of its own, without targets."""
    ids = np.concatenate([np.asarray(document, dtype=np.int64) for document in documents])
    missing = length - len(ids)
    sizes = [*map(len, documents), *([missing] if missing else [])]
    positions = np.concatenate([np.arange(size) for size in sizes])
    ids = np.pad(ids, (0, missing))
    target = (positions > 0) & (np.arange(length) < length - missing)
    return {"input_ids": ids, "position_ids": positions, "labels": np.where(target, ids, -100)}
