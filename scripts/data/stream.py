"""Shuffle, pack and resume data without an index: in shards, each with a position of a few numbers.

The records of a stream are dealt out to a fixed number of shards, whatever the number of processes. Each shuffles and
packs its records, and starts over at its end. Its buffer is not saved: it is read again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from datasets import IterableDataset

from qkv.scripts.data.collate import Packer
from qkv.scripts.data.examples import InvalidRecord, Record, attempt
from qkv.scripts.data.loading import identity, read_split, splits
from qkv.scripts.data.validation import Checks, RecordValidation, validate
from qkv.scripts.recipes.schema import Recipe

UNITS = 4096  # that a stream is read in at most: a resumed shard reads the one where it was again
CHUNK = 32  # records that are prepared together
MIN_TOTAL = 1000  # records that the share of invalid ones is taken of at least, before the end of a shard


@dataclass(frozen=True)
class Stream:
    """Records that are read on demand, from files or the Hub, and never all in memory.

    `checks` are what columns must hold. `prepare` makes the examples of some records, a list for each. With a `length`
    the `input_ids` of examples are packed into rows of it. `identity` says which data these are. A `holdout` is a share
    of the units that the data are read in.
    """

    data: IterableDataset
    identity: str
    invalid_records: RecordValidation
    checks: Checks = field(default_factory=dict)
    prepare: Callable[[Sequence[Record]], list[list[Record]]] = lambda records: [[record] for record in records]
    length: int | None = None
    holdout: float = 0.0

    @classmethod
    def of(cls, recipe: Recipe, invalid: RecordValidation, checks: Checks, **fields: Any) -> "Stream":
        """Stream the training split of a recipe's data; its holdout is kept back where there is no validation split."""
        data = read_split(recipe, [name for name in checks if isinstance(name, str)], streaming=True)
        holdout = 0.0 if "validation" in splits(recipe.data.source) else recipe.data.holdout
        return cls(data, identity(recipe.data.source), invalid, checks, holdout=holdout, **fields)

    def contents(self) -> Iterator[bytes]:
        """Yield the identity of the data, for a fingerprint."""
        yield f"{self.identity} in rows of {self.length}".encode()

    @property
    def units(self) -> int:
        """Return how many units are read one by one."""
        return min(self.data.num_shards, UNITS)

    @property
    def kept(self) -> int:
        """Return how many of them, the last, are kept back; ValueError where nothing would be left."""
        kept = math.ceil(self.units * self.holdout)
        if kept and kept == self.units:
            raise ValueError(
                f"holdout={self.holdout}: {self.identity} is streamed in {self.units} parts, too few to keep one back; "
                "give it a validation split, or leave out streaming=true"
            )
        return kept

    def read(self, unit: int, first: int, strands: int) -> Iterator[Record]:
        """Read every `strands`-th record of a unit, each with its origin."""
        file, rows = f"part {unit + 1} of {self.identity}", enumerate(self.data.shard(self.units, unit), start=1)
        yield from ({"_file": file, "_row": row, **record} for row, record in islice(rows, first, None, strands))


@dataclass
class Position:
    """The position of a shard: its epoch, and the parts of it and the records of the next part before its buffer.

    Of the buffer so many records are `taken`, and so many examples `given` of the next one. `waiting` are the
    documents of a row that is not full. `seen`, `bad` and `first` count records of the first epoch, and have the
    first error.
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


@dataclass
class Shard:
    """One shard of a stream: an endless iterator of examples, with the position to resume from at any time."""

    stream: Stream
    recipe: Recipe
    number: int
    start: InitVar[dict[str, Any]]

    def __post_init__(self, start: dict[str, Any]) -> None:
        self.at, self.learnable = Position(**{**start, "waiting": list(start["waiting"])}), 0

    def state(self) -> dict[str, Any]:
        """Return the position after the last example, as JSON."""
        return {**vars(self.at), "waiting": list(self.at.waiting)}

    def examples(self) -> Iterator[Record]:
        """Yield examples from the position on; ValueError for too many invalid records, or for no examples."""
        while True:
            whole, before = (self.at.part, self.at.row, self.at.taken) == (0, 0, 0), self.learnable
            records = self.records()
            while window := list(islice(records, self.recipe.data.buffer)):
                seed = (self.recipe.seed, self.number, self.at.epoch, self.at.window)
                order = np.random.default_rng(seed).permutation(len(window))
                yield from self.window([window[index][2] for index in order])
                self.at.part, self.at.row, _ = window[-1]
                self.at.window, self.at.taken = self.at.window + 1, 0
            self.check_share(self.at.seen)
            if whole and self.learnable == before:
                shard = f"shard {self.number + 1} of {self.recipe.data.shards}"
                raise ValueError(f"{shard} has nothing to learn from; give more data, or a smaller shards=")
            self.at.epoch, self.at.part, self.at.row, self.at.window = self.at.epoch + 1, 0, 0, 0

    def records(self) -> Iterator[tuple[int, int, Record]]:
        """Yield the records of an epoch with the parts before them, and the records of their part up to them.

        A part is a unit, or, where these are fewer than shards, every so-many-th record of one.
        """
        units, shards = self.stream.units - self.stream.kept, self.recipe.data.shards
        strands = -(-shards // units)
        # Dealt out anew in each epoch: every part to one shard.
        order = np.random.default_rng((self.recipe.seed, self.at.epoch)).permutation(units * strands)
        mine, skip = order[self.number :: shards].tolist(), self.at.row
        for number, part in enumerate(mine[self.at.part :], start=self.at.part):
            unit, first = divmod(part, strands)
            records = enumerate(self.stream.read(unit, first, strands), start=1)
            yield from ((number, row, record) for row, record in islice(records, skip, None))
            skip = 0

    def window(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yield the examples of the buffered records, from the position on."""
        packer = Packer(self.stream.length, self.at.waiting) if self.stream.length else None
        for start in range(self.at.taken, len(records), CHUNK):
            chunk = records[start : start + CHUNK]
            for record, made in zip(chunk, self.prepared(chunk), strict=True):
                examples = [] if isinstance(made, InvalidRecord) else made
                if packer:
                    examples = [row for example in examples for row in packer.add(example["input_ids"])]
                for example in examples[self.at.given :]:
                    self.at.given += 1
                    yield example
                self.count(record, made)
                self.at.waiting = list(packer.waiting) if packer else []
                self.at.taken, self.at.given = self.at.taken + 1, 0

    def prepared(self, records: Sequence[Record]) -> list[list[Record] | InvalidRecord]:
        """Make the examples of each record, or return why it is invalid."""
        checked = [attempt(validate, record, self.stream.checks) for record in records]
        examples = iter(self.stream.prepare([record for record in checked if not isinstance(record, InvalidRecord)]))
        return [record if isinstance(record, InvalidRecord) else next(examples) for record in checked]

    def count(self, record: Record, made: list[Record] | InvalidRecord) -> None:
        """Count a record, and log an invalid one; ValueError where too many are."""
        self.learnable += isinstance(made, list) and any(len(example.get("input_ids", "?")) for example in made)
        self.at.seen += self.at.epoch == 0
        if isinstance(made, InvalidRecord):
            message = self.stream.invalid_records.add(record, str(made))
            if self.at.epoch == 0:
                self.at.bad, self.at.first = self.at.bad + 1, self.at.first or message
                self.check_share(max(self.at.seen, MIN_TOTAL))

    def check_share(self, seen: int) -> None:
        """Raise ValueError where too many of the seen records are invalid; a single one is allowed in each shard."""
        invalid = self.stream.invalid_records
        invalid.check_share(self.at.bad, seen, self.at.first, allowed=1 if invalid.share else 0)
