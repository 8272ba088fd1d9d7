"""Samples: one order for all processes, every example once an epoch, and the same batches from any step on."""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from qkv.scripts.data.examples import Batch, Columns, stack
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.sampler import BUCKET, MapLoader, Place, Sampler, Share
from recipes import recipe_of
from tiny_training import task_of

RECIPE = recipe_of(batch_size=8)


def share(recipe: Recipe, rank: int = 0, processes: int = 1) -> Share:
    return Share.of(SimpleNamespace(process_index=rank, num_processes=processes, parallelism_config=None), recipe)


def task(size: int) -> Task:
    examples = Columns({"index": torch.arange(size)})
    examples.lengths = [(index * 7) % 11 for index in range(size)]

    def collate(records: list, places: list | None) -> Batch:
        return {**stack(records), "places": torch.tensor(places)}

    return task_of(examples, collate=collate)


def taken(recipe: Recipe, steps: int, done: int = 0, rank: int = 0, processes: int = 1) -> list[list[int]]:
    """The (index, place) of what one process gets, a list for each part."""
    loader = MapLoader(task(30), recipe, share(recipe, rank, processes))
    batches = islice(loader.micro_batches(done), steps * recipe.optimization.accumulate)
    return [list(zip(batch["index"].tolist(), batch["places"].tolist(), strict=True)) for batch in batches]


def epochs(sampler: Sampler, count: int) -> list[list[Place]]:
    found = sampler.places(0)
    return [list(islice(found, sampler.size)) for _ in range(count)]


def test_epoch_is_another_permutation() -> None:
    found = epochs(Sampler(10, RECIPE), 3)
    assert [place for one in found for place, _ in one] == list(range(30))
    orders = [[index for _, index in one] for one in found]
    assert all(sorted(one) == list(range(10)) for one in orders)
    assert orders[0] != orders[1] != orders[2]
    assert epochs(Sampler(10, changed(RECIPE, seed=1)), 1)[0] != found[0]


@pytest.mark.parametrize("group_by_length", [False, True])
def test_batches_continue_from_any_step(group_by_length: bool) -> None:
    recipe, state = changed(RECIPE, accumulate=2, group_by_length=group_by_length), torch.get_rng_state()
    whole = taken(recipe, 2 * BUCKET + 5)
    assert torch.equal(torch.get_rng_state(), state)
    for done in (1, 7, BUCKET - 1, BUCKET, BUCKET + 1, 2 * BUCKET):
        assert taken(recipe, 5, done) == whole[2 * done : 2 * done + 10]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("group_by_length", [False, True])
def test_shares_of_processes_are_the_step(group_by_length: bool, workers: int) -> None:
    recipe = changed(RECIPE, batch_size=12, group_by_length=group_by_length, workers=workers)
    alone = taken(recipe, 9)
    shares = [taken(changed(recipe, accumulate=2), 9, 0, rank, 3) for rank in range(3)]
    for step in range(9):
        parts = [part for share in shares for part in share[2 * step : 2 * step + 2]]
        assert {len(part) for part in parts} == {2}
        assert [drawn for part in parts for drawn in part] == alone[step]


def test_steps_by_length_hold_similar_lengths() -> None:
    lengths = torch.randint(1, 100, (200,)).tolist()
    steps = list(islice(Sampler(200, RECIPE, lengths).steps(), BUCKET))
    assert sorted(place for step in steps for place, _ in step) == list(range(BUCKET * 8))
    assert sum(max(lengths[i] for _, i in step) - min(lengths[i] for _, i in step) for step in steps) < 4 * BUCKET
    sums = [sum(lengths[index] for _, index in step) for step in steps]
    assert sums != sorted(sums)
    bare = task_of(Columns({"index": torch.arange(30)}))
    with pytest.raises(ValueError, match="group_by_length=true"):
        MapLoader(bare, changed(RECIPE, group_by_length=True), share(RECIPE))


def test_indivisible_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size=8 .*3 processes"):
        share(RECIPE, 0, 3)
