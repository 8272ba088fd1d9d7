"""How do documents of any length fill rows of one length? End to end, each kept to itself by positions that restart.

Nothing is padded but the end of the last row, and no token is lost. A document that meets the end of a row goes on in
the next as one of its own: what stands before it is out of sight there, as is every other document.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from qkv.scripts.training.fingerprint import contents
from qkv.scripts.training.task import Record

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


class Packed:
    """Rows as `pack` makes them, of tokens in a table: each is put together when it is asked for."""

    def __init__(self, tokens: Any, length: int) -> None:
        self.tokens, self.length = tokens, length
        self.ends = np.cumsum(np.asarray(tokens["length"], dtype=np.int64))

    def __len__(self) -> int:
        return -(-int(self.ends[-1]) // self.length) if len(self.ends) else 0

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        return [self.row(index) for index in indices]

    def contents(self) -> Iterator[bytes]:
        """The tokens, and how long a row is."""
        yield f"rows of {self.length}".encode()
        yield from contents(self.tokens)

    def row(self, index: int) -> Record:
        """The documents, or parts of them, that lie in one row."""
        begin, end = index * self.length, (index + 1) * self.length
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = min(int(np.searchsorted(self.ends, end, side="left")), len(self.ends) - 1)
        documents = self.tokens[first : last + 1]["input_ids"]
        start = int(self.ends[first]) - len(documents[0])
        found = []
        for document in documents:
            found.append(document[max(begin - start, 0) : end - start])
            start += len(document)
        return row([part for part in found if len(part)], self.length)
