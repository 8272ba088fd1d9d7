"""The mean of the weights of the last evaluations."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from qkv.scripts.recipes.loading import load
from qkv.scripts.training.averaging import MEAN, averaged_steps
from qkv.scripts.training.run import take_steps
from tiny_training import manager


@pytest.mark.parametrize(
    ("average", "every", "steps"),
    [(1, 4, []), (2, 4, [8, 10]), (3, 5, [5, 10]), (2, 20, [10]), (9, 2, [2, 4, 6, 8, 10])],
)
def test_the_last_evaluations_are_averaged(average: int, every: int, steps: list[int]) -> None:
    recipe = load("digits", [f"average={average}", f"eval_every={every}", "max_steps=10"])
    assert averaged_steps(recipe) == steps


def weights_at(folder: Path, steps: list[int]) -> list[dict[str, Tensor]]:
    return [load_file(folder / "checkpoints" / f"step-{step:06}" / "model.safetensors") for step in steps]


def test_the_mean_is_kept_evaluated_and_resumed(tmp_path: Path) -> None:
    words = {"average": 3, "eval_every": 3, "save_every": 1, "keep": 20}
    whole = manager(tmp_path / "whole", **words)
    take_steps(whole)
    last = weights_at(tmp_path / "whole", [10])[0]
    whole.load_kept()
    mean = {name: weight.clone() for name, weight in whole.loop.model.state_dict().items() if name in last}
    parts = weights_at(tmp_path / "whole", [6, 9, 10])
    for name, weight in mean.items():
        expected = torch.stack([part[name].double() for part in parts]).mean(0)
        torch.testing.assert_close(weight.double(), expected, rtol=1e-6, atol=1e-7)
    assert not all(torch.equal(mean[name], weight) for name, weight in last.items())
    measured = {name: whole.loop.evaluate(split) for name, split in whole.loop.task.splits.items() if name != "test"}
    assert whole.average.steps == [6, 9, 10] and whole.early_stopping.results == measured
    again = manager(tmp_path / "whole", **words)
    again.resume()
    again.load_kept()
    assert all(torch.equal(again.loop.model.state_dict()[name], weight) for name, weight in mean.items())


def test_a_longer_training_averages_its_last_steps_alone(tmp_path: Path) -> None:
    words = {"average": 2, "eval_every": 3}
    take_steps(manager(tmp_path / "run", **words))
    longer = manager(tmp_path / "run", **words, max_steps=13)
    longer.resume()
    assert longer.average.steps == [9, 10] and (tmp_path / "run/checkpoints/step-000010" / MEAN).is_file()
    take_steps(longer)
    assert longer.average.steps == [12, 13]
