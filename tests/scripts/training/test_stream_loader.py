"""Streams: the same steps on any number of processes, every record once a pass, and the same again from any step."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import IterableDataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import stream_worker
from qkv.scripts.data import stream as shard
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.loading import read
from qkv.scripts.data.stream import Shard, Stream
from qkv.scripts.data.validation import RecordValidation, check_text
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training import state
from qkv.scripts.training.sampler import MapLoader, Share
from qkv.scripts.training.stream_loader import StreamLoader, make_loader, prefetch
from recipes import recipe_of
from tiny_training import task_of

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


def task(made: Stream) -> Task:
    return task_of(made, collate=collate)


def plain(data: IterableDataset | None = None, **fields: Any) -> Stream:
    return Stream(data or numbers(), "numbers", RecordValidation(0.01), **fields)


def packed() -> Stream:
    return plain(prepare=words, length=6)


def feed(made: Stream, recipe: Recipe = RECIPE, rank: int = 0, processes: int = 1) -> StreamLoader:
    return StreamLoader(
        task(made), recipe, Share(rank, processes, recipe.optimization.accumulate, recipe.optimization.batch_size)
    )


def taken(one: StreamLoader, steps: int, done: int = 0) -> list[list[Any]]:
    """What each step holds: (place, content) of all parts."""
    parts = one.micro_batches(done)
    found = []
    for _ in range(steps):
        step = [next(parts) for _ in range(one.share.accumulate)]
        name = "n" if "n" in step[0] else "input_ids"
        found.append([pair for part in step for pair in zip(part["places"].tolist(), part[name].tolist(), strict=True)])
    return found


def first_pass(one: StreamLoader) -> list[int]:
    """The records of every shard to its first end."""
    found = []
    for number in one.own:
        shard = Shard(one.task.train, one.recipe, number, one.states[str(number)])
        for example in shard.examples():
            if shard.at.epoch:
                break
            found.append(example["n"])
    return found


@pytest.mark.parametrize("shards", [1, 2, 4, 8])
@pytest.mark.parametrize("parts", [1, 3, 20])
def test_a_pass_sees_every_record_once_in_an_order_of_its_own(shards: int, parts: int) -> None:
    orders = []
    for seed in range(2):
        one = feed(plain(numbers(parts=parts)), changed(RECIPE, shards=shards, seed=seed))
        orders.append(first_pass(one))
    assert all(sorted(order) == list(range(SIZE)) for order in orders)
    assert orders[0] != orders[1] and orders[0] != list(range(SIZE))


def test_each_pass_has_another_order_and_the_same_records() -> None:
    recipe = changed(RECIPE, shards=1)
    seen = [n for step in taken(feed(plain(numbers(56)), recipe), 21) for _, n in step]
    passes = [seen[start : start + 56] for start in (0, 56, 112)]
    assert all(sorted(one) == list(range(56)) for one in passes)
    assert passes[0] != passes[1] != passes[2]


@pytest.mark.parametrize("make", [plain, packed])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_are_the_same_for_any_number_of_processes(make: Any, accumulate: int) -> None:
    alone = taken(feed(make()), 30)
    assert [place for step in alone for place, _ in step] == list(range(240))
    recipe = changed(RECIPE, accumulate=accumulate)
    for processes in (1, 2, 4):
        shares = [taken(feed(make(), recipe, rank, processes), 30) for rank in range(processes)]
        assert [sum(step, []) for step in zip(*shares, strict=True)] == alone


@pytest.mark.parametrize("make", [plain, packed])
def test_a_feed_goes_on_from_any_step(make: Any) -> None:
    whole = taken(feed(make()), 33)
    assert len({json.dumps(step) for step in whole}) == 33
    for done in (1, 2, 3, 7, 12, 20, 29):
        one = feed(make())
        parts = one.micro_batches(0)
        for _ in range(done):
            next(parts)
        state = json.loads(json.dumps(one.state_dict()))
        other = feed(make())
        other.load_state_dict(state)
        assert taken(other, 4, done) == whole[done : done + 4]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10, deadline=None)
@given(
    worlds=st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=4),
    counts=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    buffer=st.integers(1, 30),
)
def test_the_number_of_processes_may_change_between_steps(worlds: list[int], counts: list[int], buffer: int) -> None:
    recipe = changed(RECIPE, buffer=buffer)
    alone = taken(feed(packed(), recipe), sum(counts))
    state, found = None, []
    for processes, steps in zip(worlds, counts, strict=False):
        feeds = [feed(packed(), recipe, rank, processes) for rank in range(processes)]
        for one in feeds:
            if state:
                one.load_state_dict(state)
        shares = [taken(one, steps, len(found)) for one in feeds]
        found += [sum(step, []) for step in zip(*shares, strict=True)]
        state = json.loads(json.dumps({k: v for one in feeds for k, v in one.state_dict().items()}))
    assert found == alone[: len(found)]


def test_packed_rows_hold_every_token_of_a_pass_once() -> None:
    steps = taken(feed(packed(), changed(RECIPE, shards=1)), 6)
    rows = [row for step in steps for _, row in step]
    documents = [document[0]["input_ids"] for document in words([{"n": n} for n in range(SIZE)])]
    expected = sorted(token for document in documents for token in document)
    assert sorted([token for row in rows for token in row][: len(expected)]) == expected


def test_pools_and_threads_change_nothing_and_end() -> None:
    expected = taken(feed(packed()), 20)
    assert taken(feed(packed(), changed(RECIPE, workers=3)), 20) == expected
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("prefetch", "ThreadPool"))]


def test_batches_leave_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    taken(feed(plain()), 3)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_stream_is_read_as_it_is_needed() -> None:
    def endless() -> Iterator[Record]:
        yield from ({"n": n} for n in range(10**9))

    one = feed(plain(IterableDataset.from_generator(endless)), changed(RECIPE, shards=1))
    assert len(taken(one, 5)) == 5


def test_a_task_is_fed_by_what_it_has() -> None:
    share = Share(0, 1, 1, 8)
    assert isinstance(make_loader(task(plain()), RECIPE, share), StreamLoader)
    indexed = task(Columns({"n": torch.arange(9)}))
    assert isinstance(make_loader(indexed, RECIPE, share), MapLoader)
    with pytest.raises(TypeError, match="the examples of t are a stream: they have no index"):
        MapLoader(task(plain()), RECIPE, share)


def test_a_stream_has_no_size_and_is_known_by_its_identity() -> None:
    one, other = task(plain()), task(replace(plain(), identity="others"))
    assert one.sizes() == {"train": None}
    assert one.fingerprint() == task(plain()).fingerprint() != other.fingerprint()


# Bad records ----------------------------------------------------------------------------------------------------------


def lines(path: Path, good: int, bad: Sequence[int]) -> Path:
    path.write_bytes(b"".join(b'{"text": "\xff"}\n' if n in bad else b'{"text": "%d"}\n' % n for n in range(good)))
    return path


def texts(path: Path, share: float) -> Stream:
    prepare = lambda records: [[{"n": int(record["text"])}] for record in records]  # noqa: E731
    return Stream(read(str(path), streaming=True), "x", RecordValidation(share), {"text": check_text}, prepare)


def test_bad_records_are_skipped_written_down_once_and_counted(tmp_path: Path) -> None:
    made = texts(lines(tmp_path / "x.jsonl", 200, [3, 77, 150]), 0.05)
    made.invalid_records.open(tmp_path, is_main=True)
    found = {n for step in taken(feed(made), 80) for _, n in step}
    assert found == set(range(200)) - {3, 77, 150}
    written = [json.loads(line) for line in (tmp_path / "bad-records.jsonl").read_text().splitlines()]
    assert sorted(line["row"] for line in written) == [4, 78, 151] and all(line["reason"] for line in written)
    assert {line["file"] for line in written} == {str(tmp_path / "x.jsonl")}


def test_too_many_bad_records_end_the_run_with_the_first(tmp_path: Path) -> None:
    made = texts(lines(tmp_path / "x.jsonl", 200, range(0, 200, 4)), 0.05)
    with pytest.raises(
        ValueError,
        match=r"records are bad, more than bad_records=0\.05 allows; the first is .*x\.jsonl, row \d+: ",
    ):
        taken(feed(made), 80)


def test_where_none_may_be_bad_one_is_too_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 of 1000 records are bad"):
        taken(feed(texts(lines(tmp_path / "x.jsonl", 200, [150]), 0.0)), 30)


def test_counts_go_on_with_the_position(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", 200, [3, 77, 150])
    whole, first = feed(texts(path, 0.05)), feed(texts(path, 0.05))
    taken(whole, 40)
    taken(first, 11)
    second = feed(texts(path, 0.05))
    second.load_state_dict(first.state_dict())
    taken(second, 29, 11)
    assert second.state_dict() == whole.state_dict()
    assert sum(state["bad"] for state in whole.state_dict().values()) == 3


# Real processes -------------------------------------------------------------------------------------------------------


def story(folder: Path) -> Path:
    path = folder / "x.txt"
    path.write_bytes(b"\n".join(b"\xff" if n == 20 else b"abcdefghijk"[n % 7 : 3 + n % 9] for n in range(60)))
    return path


def test_a_checkpoint_takes_a_stream_up_where_it_was(tmp_path: Path) -> None:
    path = story(tmp_path)
    whole = stream_worker.trained(path, 4)
    first, second = (stream_worker.prepared(path, 4) for _ in range(2))
    losses = [step.loss for step in islice(first.steps(), 5)]
    tensors, facts = state.capture(first)
    state.restore(second, tensors, json.loads(json.dumps(facts)))
    losses += [step.loss for step in second.steps()]
    assert torch.equal(torch.stack(losses), whole.pop("losses"))
    found = second.model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in whole.items())


@pytest.mark.slow
def test_two_processes_learn_from_a_stream_what_one_does(tmp_path: Path) -> None:
    path = story(tmp_path)
    alone, other = (stream_worker.trained(path, shards) for shards in (4, 2))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*launch, stream_worker.__file__, path, tmp_path / "found"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        found = load_file(tmp_path / f"found-{rank}")
        assert max((found[name] - value).abs().max().item() for name, value in alone.items()) < 1e-10
        assert (found["losses"] - other["losses"]).abs().max() > 1e-4


# What cannot work -----------------------------------------------------------------------------------------------------


def test_a_shard_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="has nothing to learn from; give more data, or a smaller shards="):
        taken(feed(plain(numbers(3, parts=1))), 1)


def test_documents_without_tokens_do_not_keep_a_run_waiting() -> None:
    made = replace(packed(), prepare=lambda records: [[{"input_ids": []}] for _ in records])
    with pytest.raises(ValueError, match="has nothing to learn from"):
        taken(feed(made), 1)


@pytest.mark.parametrize(("shards", "processes"), [(3, 1), (16, 1), (2, 4)])
def test_shards_that_do_not_fit_are_refused(shards: int, processes: int) -> None:
    with pytest.raises(
        ValueError, match=f"shards={shards} must divide batch_size=8 and be a multiple of the {processes} process"
    ):
        feed(plain(), changed(RECIPE, shards=shards), 0, processes)


def test_a_state_of_other_shards_is_refused() -> None:
    other = feed(plain(), changed(RECIPE, shards=2))
    with pytest.raises(ValueError, match="the checkpoint has 4 shards, the recipe shards=2"):
        other.load_state_dict(feed(plain()).state_dict())


def test_what_fails_in_the_thread_is_raised_in_the_loop() -> None:
    def broken(records: Sequence[Record]) -> list[list[Record]]:
        raise RuntimeError("no tokens today")

    with pytest.raises(RuntimeError, match="no tokens today"):
        taken(feed(plain(prepare=broken)), 1)


def test_many_small_parts_are_read_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "UNITS", 5)
    one = plain(numbers(parts=20))
    assert len(one.parts(4)) == 5 and len(one.parts(8)) == 10
    found = [record["n"] for part in one.parts(8) for record in one.read(*part)]
    assert sorted(found) == list(range(SIZE))
    assert np.unique(found).size == SIZE


def test_so_many_items_are_made_ahead_and_the_generator_is_closed() -> None:
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


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2)
        raise OSError("the disk is gone")

    found = prefetch(items, 8)
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
