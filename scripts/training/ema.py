"""Which weights are best at the end of a noisy training? An exponential moving average of those on the way."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Average:
    """An exponential moving average of a model's weights, which costs one more copy of them.

    It weighs the first steps less than `decay` says, so that a short training does not remember its random start.

    Source: Polyak and Juditsky 1992, https://doi.org/10.1137/0330046; the rising decay is that of TensorFlow's
        ExponentialMovingAverage.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = model, decay, 0
        self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the model's weights after another step into the average."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        get_ema_multi_avg_fn(decay)(pieces(self.weights.values()), self.now(), self.steps)

    def now(self) -> list[Tensor]:
        """The model's own weights, or what this process has of them."""
        return pieces(weight.detach() for weight in self.model.parameters())

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this the model has the averaged weights."""
        own = [weight.clone() for weight in self.now()]
        self.put(list(self.weights.values()))
        try:
            yield
        finally:
            self.put(own)

    def put(self, weights: list[Tensor]) -> None:
        """Give the model these weights."""
        torch._foreach_copy_(self.now(), pieces(weights))


def pieces(weights: Iterable[Tensor]) -> list[Tensor]:
    """What this process has of each weight, itself: kernels over many tensors know no others."""
    return [weight.to_local() if isinstance(weight, DTensor) else weight for weight in weights]
