"""Tables and streams: equal steps on any number of processes, every example once an epoch, a position that is restored."""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import IterableDataset

import qkv
from qkv.modeling.fast_paths import varlen
from qkv.modeling.fast_paths.varlen import VarlenKernel
from qkv.scripts.data import stream
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.loading import read
from qkv.scripts.data.stream import Shard, Stream
from qkv.scripts.data.validation import RecordValidation, check_text
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task, fingerprint_of
from qkv.scripts.training import state
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.sampler import BUCKET, MapLoader, Place, Share, places, steps
from qkv.scripts.training.stream_loader import StreamLoader, make_loader, prefetch
from recipes import recipe_of
from tiny_training import task_of
from varlen_stand_in import varlen_attn

RECIPE = recipe_of(batch_size=8, shards=4, buffer=7)
# Of records, so that no shard has as many as another; read in three parts.
SIZE = 61


def counted(ranges: list[range]) -> Iterator[Record]:
    yield from ({"n": n} for one in ranges for n in one)


@cache
def numbers(count: int = SIZE, parts: int = 3) -> IterableDataset:
    cuts = np.linspace(0, count, parts + 1).astype(int).tolist()
    ranges = [range(*pair) for pair in pairwise(cuts)]
    return IterableDataset.from_generator(counted, gen_kwargs={"ranges": ranges})


def words(records: Sequence[Record]) -> list[list[Record]]:
    """A document of each number: of none to nine tokens that say which and where."""
    return [[{"input_ids": [100 * record["n"] + place + 1 for place in range(record["n"] % 10)]}] for record in records]


def collate(records: Sequence[Record], places: Sequence[int] | None) -> Batch:
    return {**stack(records), "places": torch.tensor(places)}


def task(made: Any) -> Task:
    return task_of(made, collate=collate)


def table() -> Columns:
    examples = Columns({"n": torch.arange(30)})
    examples.lengths = [(index * 7) % 11 for index in range(30)]
    return examples


def plain(data: IterableDataset | None = None, **fields: Any) -> Stream:
    return Stream(data or numbers(), "numbers", RecordValidation(0.01), **fields)


def packed() -> Stream:
    return plain(prepare=words, length=6)


def feed(made: Any, recipe: Recipe = RECIPE, rank: int = 0, processes: int = 1) -> Any:
    """The loader of one process."""
    process: Any = SimpleNamespace(process_index=rank, num_processes=processes, parallelism_config=None)
    return make_loader(task(made), recipe, Share.of(process, recipe))


def taken(one: Any, steps: int, done: int = 0) -> list[list[Any]]:
    """What each step holds: (place, content) of all parts."""
    parts = one.micro_batches(done)
    found = []
    for _ in range(steps):
        step = [next(parts) for _ in range(one.share.accumulate)]
        name = "n" if "n" in step[0] else "input_ids"
        found.append([pair for part in step for pair in zip(part["places"].tolist(), part[name].tolist(), strict=True)])
    return found


BY_LENGTH = changed(RECIPE, group_by_length=True)
each_loader = pytest.mark.parametrize(
    ("make", "recipe"), [(table, RECIPE), (table, BY_LENGTH), (plain, RECIPE), (packed, RECIPE)]
)


def epochs(recipe: Recipe, parts: int) -> list[list[int]]:
    """The records of three epochs, of all shards together."""
    found: list[list[int]] = [[], [], []]
    one = feed(plain(numbers(parts=parts)), recipe)
    for number in one.own:
        shard = Shard(one.task.train, one.recipe, number, one.states[str(number)])
        for example in shard.examples():
            if shard.at.epoch > 2:
                break
            found[shard.at.epoch].append(example["n"])
    return found


@pytest.mark.parametrize("shards", [1, 2, 8])
@pytest.mark.parametrize(("parts", "units"), [(1, stream.UNITS), (20, stream.UNITS), (20, 5)])
def test_each_epoch_has_every_record_once_in_another_order(
    shards: int, parts: int, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "UNITS", units)
    assert plain(numbers(parts=parts)).units == min(parts, units)
    orders = [order for seed in range(2) for order in epochs(changed(RECIPE, shards=shards, seed=seed), parts)]
    assert all(sorted(order) == list(range(SIZE)) for order in orders)
    assert len({tuple(order) for order in [*orders, list(range(SIZE))]}) == 7


@each_loader
def test_steps_are_equal_for_any_number_of_processes(make: Any, recipe: Recipe) -> None:
    alone = taken(feed(make(), recipe), 30)
    assert recipe is BY_LENGTH or [place for step in alone for place, _ in step] == list(range(240))
    for processes, accumulate in ((1, 2), (2, 1), (4, 2)):
        shared = changed(recipe, accumulate=accumulate)
        shares = [taken(feed(make(), shared, rank, processes), 30) for rank in range(processes)]
        assert [sum(step, []) for step in zip(*shares, strict=True)] == alone


@each_loader
def test_number_of_processes_may_change_between_steps(make: Any, recipe: Recipe) -> None:
    alone, state, steps = taken(feed(make(), recipe), 33), None, []
    assert len({json.dumps(step) for step in alone}) == 33
    for processes, number in ((1, 1), (1, 6), (4, 3), (2, 19), (4, 4)):
        feeds = [feed(make(), recipe, rank, processes) for rank in range(processes)]
        for one in feeds if state else ():
            one.restore(state)
        shares = [taken(one, number, len(steps)) for one in feeds]
        steps += [sum(step, []) for step in zip(*shares, strict=True)]
        state = json.loads(json.dumps({name: at for one in feeds for name, at in one.states.items()}))
    assert steps == alone


@each_loader
def test_workers_change_nothing_and_end(make: Any, recipe: Recipe) -> None:
    expected, state = taken(feed(make(), recipe), 20), torch.get_rng_state()
    assert taken(feed(make(), changed(recipe, workers=2)), 20) == expected
    assert torch.equal(torch.get_rng_state(), state)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("prefetch", "ThreadPool"))]


@pytest.mark.parametrize("recipe", [RECIPE, BY_LENGTH])
def test_steps_of_a_table_continue_around_buckets(recipe: Recipe) -> None:
    whole = taken(feed(table(), recipe), 2 * BUCKET + 5)
    for done in (1, 7, BUCKET - 1, BUCKET, BUCKET + 1, 2 * BUCKET):
        assert taken(feed(table(), recipe), 5, done) == whole[done : done + 5]


def permutations(size: int, seed: int, count: int) -> list[list[Place]]:
    found = places(size, seed)
    return [list(islice(found, size)) for _ in range(count)]


def test_epoch_is_another_permutation() -> None:
    found = permutations(10, 0, 3)
    assert [place for one in found for place, _ in one] == list(range(30))
    orders = [[index for _, index in one] for one in found]
    assert all(sorted(one) == list(range(10)) for one in orders)
    assert orders[0] != orders[1] != orders[2]
    assert permutations(10, 1, 1)[0] != found[0]


def test_steps_by_length_hold_similar_lengths() -> None:
    lengths = torch.randint(1, 100, (200,)).tolist()
    found = list(islice(steps(200, RECIPE, lengths), BUCKET))
    assert sorted(place for step in found for place, _ in step) == list(range(BUCKET * 8))
    assert sum(max(lengths[i] for _, i in step) - min(lengths[i] for _, i in step) for step in found) < 4 * BUCKET
    sums = [sum(lengths[index] for _, index in step) for step in found]
    assert sums != sorted(sums)
    bare = task_of(Columns({"index": torch.arange(30)}))
    with pytest.raises(ValueError, match="group_by_length=true"):
        MapLoader(bare, BY_LENGTH, Share(0, 1, 1, 8))


def test_packed_rows_have_every_token_of_an_epoch_once() -> None:
    rows = [row for step in taken(feed(packed(), changed(RECIPE, shards=1)), 6) for _, row in step]
    expected = sorted(token for [document] in words([{"n": n} for n in range(SIZE)]) for token in document["input_ids"])
    assert sorted([token for row in rows for token in row][: len(expected)]) == expected


def test_stream_is_read_on_demand() -> None:
    endless = IterableDataset.from_generator(lambda: ({"n": n} for n in count()))
    assert len(taken(feed(plain(endless), changed(RECIPE, shards=1)), 5)) == 5


def test_loader_follows_the_examples() -> None:
    share = Share(0, 1, 1, 8)
    assert isinstance(make_loader(task(plain()), RECIPE, share), StreamLoader)
    assert isinstance(make_loader(task(Columns({"n": torch.arange(9)})), RECIPE, share), MapLoader)
    one, other = task(plain()), task(replace(plain(), identity="others"))
    assert one.sizes() == {"train": None} and fingerprint_of(one) != fingerprint_of(other)


# Bad records ----------------------------------------------------------------------------------------------------------


def lines(path: Path, good: int, bad: Sequence[int]) -> Path:
    path.write_bytes(b"".join(b'{"text": "\xff"}\n' if n in bad else b'{"text": "%d"}\n' % n for n in range(good)))
    return path


def texts(path: Path, share: float) -> Stream:
    prepare = lambda records: [[{"n": int(record["text"])}] for record in records]  # noqa: E731
    return Stream(read(str(path), streaming=True), "x", RecordValidation(share), {"text": check_text}, prepare)


def test_bad_records_are_skipped_and_written_once(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", 200, [3, 77, 150])
    made, whole = texts(path, 0.05), feed(texts(path, 0.05))
    made.invalid_records.open(tmp_path, is_main=True)
    first = feed(made)
    assert {n for step in taken(first, 80) for _, n in step} == set(range(200)) - {3, 77, 150}
    written = [json.loads(line) for line in (tmp_path / "bad-records.jsonl").read_text().splitlines()]
    assert sorted(line["row"] for line in written) == [4, 78, 151]
    assert {line["file"] for line in written} == {str(path)} and all("UTF-8" in line["reason"] for line in written)
    taken(whole, 91)
    second = feed(texts(path, 0.05))
    second.restore(first.states)
    taken(second, 11, 80)
    assert second.states == whole.states
    assert sum(state["bad"] for state in whole.states.values()) == 3


@pytest.mark.parametrize(("bad", "share"), [(range(0, 200, 4), 0.05), ([150], 0.0)])
def test_too_many_bad_records_end_the_run(bad: Sequence[int], share: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"bad_records={share}.*x\.jsonl, row \d+|1 of 1000 records"):
        taken(feed(texts(lines(tmp_path / "x.jsonl", 200, bad), share)), 80)


def stream_loop(**fields: Any) -> Loop:
    """A decoder that trains on packed rows."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 100 * SIZE, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = qkv.QkvDecoderConfig(**sizes, **fields)
    made = task_of(packed(), count=lambda batch: int((batch["labels"][:, 1:] != -100).sum()))
    recipe = changed(RECIPE, max_steps=12, accumulate=2, learning_rate=1e-2)
    return Loop(Accelerator(cpu=True), qkv.QkvDecoderForCausalLM(config), recipe, made)


def test_training_on_a_stream_continues_from_a_checkpoint() -> None:
    whole = [step.loss for step in stream_loop().steps()]
    first, second = stream_loop(), stream_loop()
    losses = [step.loss for step in islice(first.steps(), 5)]
    tensors, facts = state.capture(first)
    state.restore(second, tensors, json.loads(json.dumps(facts)))
    assert torch.equal(torch.stack(losses + [step.loss for step in second.steps()]), torch.stack(whole))


def test_packed_rows_are_one_row_where_a_kernel_reads_them_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, attend = [], mock.Mock(wraps=varlen_attn)
    whole = [step.loss for step in stream_loop(head_dim=8).steps()]
    monkeypatch.setitem(varlen.VARLEN_KERNELS, "cpu", VarlenKernel(attend, (torch.float32,), 0))
    loop = stream_loop(head_dim=8)
    loop.model.register_forward_pre_hook(lambda _, __, given: rows.append(len(given["input_ids"])), with_kwargs=True)
    losses = [step.loss for step in loop.steps()]
    assert attend.called and set(rows) == {1}
    assert torch.allclose(torch.stack(losses), torch.stack(whole), atol=1e-5)


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made", [plain(numbers(3, parts=1)), replace(packed(), prepare=lambda rows: [[] for _ in rows])]
)
def test_empty_shard_is_refused(made: Stream) -> None:
    with pytest.raises(ValueError, match="shards="):
        taken(feed(made), 1)


@pytest.mark.parametrize(("shards", "processes"), [(3, 1), (16, 1), (2, 4)])
def test_indivisible_shards_and_batches_are_refused(shards: int, processes: int) -> None:
    with pytest.raises(ValueError, match="batch_size=8 .*3 processes"):
        feed(table(), RECIPE, 0, 3)
    with pytest.raises(ValueError, match=f"shards={shards} .*batch_size=8 .*{processes} process"):
        feed(plain(), changed(RECIPE, shards=shards), 0, processes)


def test_state_of_other_shards_is_refused() -> None:
    other = feed(plain(), changed(RECIPE, shards=2))
    with pytest.raises(ValueError, match="4 shards.*shards=2"):
        other.restore(feed(plain()).states)


def test_prefetch_is_limited_ends_and_keeps_an_error_in_its_place() -> None:
    made: list[int] = []
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            for number in count():
                made.append(number)
                yield number
        finally:
            closed.set()

    found = prefetch(items, 3)
    assert [next(found), next(found)] == [0, 1]
    found.close()
    assert closed.is_set() and made == list(range(len(made))) and len(made) <= 5
    assert list(prefetch(lambda: (n for n in range(50)), 3)) == list(range(50))
    found = prefetch(lambda: (1 // n for n in (1, -1, 0)), 8)
    assert [next(found), next(found)] == [1, -1]
    with pytest.raises(ZeroDivisionError):
        next(found)
