"""How is what has no index shuffled and packed, and taken up again exactly? In shards, each with a position.

The records of a stream are dealt out to a fixed number of shards. Each shuffles and packs its own, and begins again by
itself at its end. Where a shard is takes a few numbers to say, for its buffer can be read again.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from datasets import IterableDataset

from qkv.scripts.data.loading import identity, read, splits
from qkv.scripts.data.packing import Packer
from qkv.scripts.data.readers import Fault
from qkv.scripts.data.validation import Checks, Complaints, checked
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Record

# Parts that a stream is cut into at most: of each, a resumed shard reads again what it had read.
UNITS = 4096
# Records that are prepared together.
CHUNK = 32
# Before the end of a shard, so many records are taken for granted when the share of bad ones is judged.
ENOUGH = 1000
# Chunks that a pool prepares before they are asked for.
AHEAD = 4


def unchanged(records: Sequence[Record]) -> list[list[Record]]:
    """Each record as the one example that it is."""
    return [[record] for record in records]


@dataclass(frozen=True)
class Stream:
    """Records that are read as they are needed, from files or the Hub, and never all in memory.

    `checks` are what columns must hold; records that fail go to `complaints`. `prepare` makes the examples of some
    records, a list for each. With a `length` the `input_ids` of examples are packed into rows of it. `identity` says
    which data these are. A `holdout` is that share of the parts that the data are read in.
    """

    data: IterableDataset
    identity: str
    complaints: Complaints
    checks: Checks = field(default_factory=dict)
    prepare: Callable[[Sequence[Record]], list[list[Record]]] = unchanged
    length: int | None = None
    holdout: float = 0.0

    @classmethod
    def of(cls, recipe: Recipe, complaints: Complaints, checks: Checks, **fields: Any) -> "Stream":
        """The training split of a recipe's data; its holdout is kept back where there is no validation split."""
        data = read(recipe.data, streaming=True, documents=recipe.documents, columns=list(checks))
        holdout = 0.0 if "validation" in splits(recipe.data) else recipe.holdout
        return cls(data, identity(recipe.data), complaints, checks, holdout=holdout, **fields)

    def contents(self) -> Iterator[bytes]:
        """What stands for the content in a fingerprint."""
        yield f"{self.identity} in rows of {self.length}".encode()

    def parts(self, shards: int) -> list[tuple[int, int, int]]:
        """What the stream is dealt out in: parts of it, and where these are too few every so-many-th record of one."""
        units = self.units - self.kept
        strands = -(-shards // units)
        return [(unit, first, strands) for unit in range(units) for first in range(strands)]

    @property
    def units(self) -> int:
        """How many parts are read one by one."""
        return min(self.data.num_shards, UNITS)

    @property
    def kept(self) -> int:
        """How many of them, the last, are kept back; ValueError where nothing would be left."""
        found = math.ceil(self.units * self.holdout)
        if found and found == self.units:
            raise ValueError(
                f"holdout={self.holdout}: {self.identity} is streamed in {self.units} parts, too few to keep one back; "
                f"give it a validation split, or leave out streaming=true"
            )
        return found

    def read(self, unit: int, first: int, strands: int) -> Iterator[Record]:
        """The records of a part, each with its origin."""
        data = self.data.shard(self.units, unit)
        origin = {"_file": f"part {unit + 1} of {self.identity}", "_begin": 0}
        for row, record in islice(enumerate(data, start=1), first, None, strands):
            yield {**origin, "_row": row, **record}


@dataclass
class Position:
    """Where a shard is: in which pass over its parts, behind how many of them and how many records of the next.

    That is where its buffer begins; of that so many records are behind it, and so many examples `given` of the next.
    `waiting` are the documents of a row that is not full. `seen`, `bad` and `first` are about the first pass.
    """

    epoch: int = 0
    part: int = 0
    row: int = 0
    window: int = 0
    taken: int = 0
    given: int = 0
    waiting: list[list[int]] = field(default_factory=list)
    seen: int = 0
    bad: int = 0
    first: str = ""


class Shard:
    """One of the shards of a stream: examples without end, and at any time the position to go on from."""

    def __init__(self, stream: Stream, recipe: Recipe, number: int) -> None:
        self.stream, self.recipe, self.number = stream, recipe, number
        self.at = Position()
        self.pool: Executor | None = None
        self.found = 0

    def state(self) -> dict[str, Any]:
        """The position behind the last example, as JSON."""
        return {**vars(self.at), "waiting": list(self.at.waiting)}

    def examples(self) -> Iterator[Record]:
        """Examples from the position on; ValueError where there are too many bad records, or nothing to learn from."""
        while True:
            whole, before = (self.at.part, self.at.row, self.at.taken) == (0, 0, 0), self.found
            yield from self.one_pass()
            self.judge(self.at.seen)
            if whole and self.found == before:
                raise ValueError(
                    f"shard {self.number + 1} of {self.recipe.shards} has nothing to learn from; "
                    f"give more data, or a smaller shards="
                )
            self.at.epoch, self.at.part, self.at.row, self.at.window = self.at.epoch + 1, 0, 0, 0

    def one_pass(self) -> Iterator[Record]:
        """Examples to the end of the shard's records."""
        records = self.records()
        while window := list(islice(records, self.recipe.buffer)):
            seed = (self.recipe.seed, self.number, self.at.epoch, self.at.window)
            order = np.random.default_rng(seed).permutation(len(window))
            yield from self.window([window[index][2] for index in order])
            self.at.part, self.at.row, _ = window[-1]
            self.at.window, self.at.taken = self.at.window + 1, 0

    def records(self) -> Iterator[tuple[int, int, Record]]:
        """Records with what is behind them: so many parts of this pass, so many records of the next."""
        parts = self.stream.parts(self.recipe.shards)
        # Dealt out anew in each pass: every part to one shard.
        order = np.random.default_rng((self.recipe.seed, self.at.epoch)).permutation(len(parts))
        mine = order[self.number :: self.recipe.shards].tolist()
        behind = self.at.row
        for number, part in enumerate(mine[self.at.part :], start=self.at.part):
            records = enumerate(self.stream.read(*parts[part]), start=1)
            yield from ((number, row, record) for row, record in islice(records, behind, None))
            behind = 0

    def window(self, records: Sequence[Record]) -> Iterator[Record]:
        """The examples of the buffered records, from the position on."""
        packer = Packer(self.stream.length, self.at.waiting) if self.stream.length else None
        chunks = [records[start : start + CHUNK] for start in range(self.at.taken, len(records), CHUNK)]
        for chunk, prepared in zip(chunks, ordered(self.pool, self.prepared, chunks), strict=True):
            for record, found in zip(chunk, prepared, strict=True):
                examples = [] if isinstance(found, Fault) else found
                if packer:
                    examples = [row for example in examples for row in packer.add(example["input_ids"])]
                for example in examples[self.at.given :]:
                    self.at.given += 1
                    yield example
                self.count(record, found)
                self.at.waiting = list(packer.waiting) if packer else []
                self.at.taken, self.at.given = self.at.taken + 1, 0

    def prepared(self, records: Sequence[Record]) -> list[list[Record] | Fault]:
        """The examples of each record, or what is wrong with it."""
        found = [attempt(record, self.stream.checks) for record in records]
        examples = iter(self.stream.prepare([record for record in found if not isinstance(record, Fault)]))
        return [record if isinstance(record, Fault) else next(examples) for record in found]

    def count(self, record: Record, found: list[Record] | Fault) -> None:
        """Take note of a record that was used, or could not be; ValueError where too many could not."""
        self.found += not isinstance(found, Fault) and any(len(example.get("input_ids", "?")) for example in found)
        if self.at.epoch == 0:
            self.at.seen += 1
        if isinstance(found, Fault):
            said = self.stream.complaints.note(record, str(found))
            if self.at.epoch == 0:
                self.at.bad += 1
                self.at.first = self.at.first or said
                self.judge(max(self.at.seen, ENOUGH))

    def judge(self, seen: int) -> None:
        """Raise ValueError where too many of so many records are bad; one in a shard is too few to judge by."""
        complaints = self.stream.complaints
        complaints.judge(self.at.bad, seen, self.at.first, allowed=1 if complaints.share else 0)


def attempt(record: Record, checks: Checks) -> Record | Fault:
    """The record as it should be, or what is wrong with it."""
    try:
        return checked(record, checks)
    except Fault as fault:
        return fault


def ordered(pool: Executor | None, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """What is made of each item, in order; a pool works on some ahead."""
    if pool is None:
        yield from map(work, items)
        return
    ahead: deque[Any] = deque()
    for item in items:
        ahead.append(pool.submit(work, item))
        if len(ahead) > AHEAD:
            yield ahead.popleft().result()
    yield from (future.result() for future in ahead)
