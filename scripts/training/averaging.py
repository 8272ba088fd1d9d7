"""Average the weights of the last evaluations of a training.

Source: Vaswani et al. 2017, §6.1, https://arxiv.org/abs/1706.03762, where the last 5 or 20 checkpoints are averaged
"""

from dataclasses import dataclass, field

from torch import Tensor

from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.state import weights

MEAN = "mean.safetensors"


def averaged_steps(recipe: Recipe) -> list[int]:
    """Return the steps whose weights are averaged: those of the last evaluations; none where the last weights stay."""
    last, every = recipe.optimization.max_steps, recipe.output.eval_every
    return [*range(every, last, every), last][-recipe.output.average :] if recipe.output.average > 1 else []


@dataclass
class WeightAverage:
    """The mean of the weights after some `steps`, in 32 bits on the main process."""

    steps: list[int] = field(default_factory=list)
    mean: dict[str, Tensor] = field(default_factory=dict)

    def add(self, loop: Loop) -> None:
        """Take in the weights of a step that is averaged, on all processes together."""
        planned = averaged_steps(loop.recipe)
        if loop.done not in planned:
            return
        if not {*self.steps} <= {*planned}:  # of a resumed training that is longer now
            self.steps, self.mean = [], {}
        self.steps = [*self.steps, loop.done]
        for name, weight in weights(loop).items():
            if weight.is_floating_point():
                mean = self.mean.get(name, weight.new_zeros(weight.shape).float())
                self.mean[name] = mean + (weight.float() - mean) / len(self.steps)
            else:
                self.mean[name] = weight.clone()
