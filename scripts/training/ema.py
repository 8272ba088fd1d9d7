"""Average the weights over the steps of a training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMA:
    """An exponential moving average of a model's weights, which costs one more copy of them.

    The decay rises over the first steps, as TensorFlow's ExponentialMovingAverage, so that a short training forgets its
    random start. torch's AveragedModel deep-copies the model, which FSDP2 forbids.

    Source: Polyak and Juditsky 1992, https://doi.org/10.1137/0330046
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = model, decay, 0
        self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        """Add the model's weights after a step to the average."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        get_ema_multi_avg_fn(decay)(local_tensors(self.weights.values()), self.model_weights(), self.steps)

    def model_weights(self) -> list[Tensor]:
        """Return the model's weights, or this process's shards of them."""
        return local_tensors(weight.detach() for weight in self.model.parameters())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights within this context."""
        own = [weight.clone() for weight in self.model_weights()]
        self.copy_to_model()
        try:
            yield
        finally:
            torch._foreach_copy_(self.model_weights(), own)

    def copy_to_model(self) -> None:
        """Give the model the averaged weights for good."""
        torch._foreach_copy_(self.model_weights(), local_tensors(self.weights.values()))

    def copy_from_model(self) -> None:
        """Set the average to the model's weights."""
        torch._foreach_copy_(local_tensors(self.weights.values()), self.model_weights())


def local_tensors(weights: Iterable[Tensor]) -> list[Tensor]:
    """Return this process's shard of each weight, as torch's multi-tensor kernels take no DTensors."""
    return [weight.to_local() if isinstance(weight, DTensor) else weight for weight in weights]
