"""Copies of weights that are laid out for a few rows; the linear maps that have the weights stay as they are.

Shapes: B batch, N outputs and M inputs of a linear map, R rows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeGuard, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils.output_capturing import OutputRecorder

# One row reads a transposed weight up to twice as fast where there are so many outputs for each input: a head.
WIDE = 8
# Other weights with as many outputs as inputs win a little, and get copies in models of fewer bytes.
MOST_COPIED = 2**30
# With fewer rows packing wins nothing, and with more the products are large enough by themselves.
PACKED_ROWS = range(4, 65)
# A copy is made at this call in succession with as many rows: it takes as long as it saves in a few.
PATIENCE = 4
# Hooks from here stay on a model that was once asked for its states; in calls that ask for none they do nothing.
RECORDER = OutputRecorder.__module__

# A linear map: its weight (N, M) and its bias (N) or None.
LinearMap: TypeAlias = tuple[Tensor, Tensor | None]


class WeightCopy:
    """Compute the products of linear maps that read the same input from copies of their weights: (R, M) -> (R, N).

    One row reads a transposed copy 1.1 to 2 times as fast, 4 to 64 rows weights that MKL has packed, up to twice as
    large, 1.2 to 3 times as fast. Copies are made when steps repeat, and stay while the weights are the same. `wide` is
    the number of outputs for each input from which one row gets a copy.
    """

    def __init__(self, wide: int) -> None:
        self.wide, self.seen, self.calls = wide, 0, 0
        # The rows that copies are for and the copies, exchanged as one: other threads may generate with other batches.
        self.laid_out: tuple[int, Sequence[Any]] = (0, ())
        self.probe = torch.empty(0)

    def product(self, maps: Sequence[LinearMap], hidden: Tensor) -> Tensor:
        """Compute the maps."""
        rows = hidden.shape[0]
        copied, copies = self.laid_out
        if rows != copied:
            copied, copies = self.make(maps, rows)
        if rows != copied or not copies:
            return plain_product(maps, hidden)
        if rows == 1:
            weight, bias = copies
            return torch.mm(hidden, weight) if bias is None else torch.addmm(bias, hidden, weight)
        packed = zip(copies, maps, strict=True)
        return side_by_side([torch.ops.mkl._mkl_linear(hidden, copy, *own, rows) for copy, own in packed])

    def make(self, maps: Sequence[LinearMap], rows: int) -> tuple[int, Sequence[Any]]:
        """Copy the weights once enough calls in succession had as many rows; return the copies."""
        if rows > 1 and not (rows in PACKED_ROWS and hasattr(torch.ops.mkl, "_mkl_linear")):
            return self.laid_out
        self.calls = self.calls + 1 if rows == self.seen else 1
        self.seen = rows
        if self.calls < PATIENCE:
            return self.laid_out
        weights = [weight.detach() for weight, _ in maps]
        self.probe = probe(maps)
        if rows > 1:
            self.laid_out = (rows, [torch.ops.mkl._mkl_reorder_linear_weight(weight, rows) for weight in weights])
        elif sum(map(len, weights)) < self.wide * weights[0].shape[1]:
            self.laid_out = (rows, ())
        else:
            self.laid_out = (rows, (side_by_side(weights, 0).t().contiguous(), joint_bias(maps)))
        return self.laid_out

    def is_of(self, maps: Sequence[LinearMap]) -> bool:
        """Return True unless a weight has changed; versions do not tell, for what is written to `.data` has none."""
        return not self.laid_out[1] or torch.equal(self.probe, probe(maps))


def side_by_side(parts: Sequence[Tensor], dim: int = -1) -> Tensor:
    """Join tensors, one alone without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def joint_bias(maps: Sequence[LinearMap]) -> Tensor | None:
    """Return the biases of maps one after another, zeros for a map without one; None where none has one."""
    if all(bias is None for _, bias in maps):
        return None
    return torch.cat([weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in maps])


def probe(maps: Sequence[LinearMap]) -> Tensor:
    """Return numbers that a change of a weight or bias changes, at the cost of one step."""
    inputs = torch.linspace(1, 2, maps[0][0].shape[1])
    sums = [torch.mv(weight.detach(), inputs) for weight, _ in maps]
    return torch.cat([*sums, *(bias.detach() for _, bias in maps if bias is not None)])


def plain_product(maps: Sequence[LinearMap], hidden: Tensor) -> Tensor:
    """Compute the products of linear maps that read the same input: (..., M) -> (..., N)."""
    return side_by_side([F.linear(hidden, *own) for own in maps])


def is_plain(hidden: Tensor) -> bool:
    """Return True where nothing but numbers is computed: no gradients, no graph, no other precision."""
    traced = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return not traced and type(hidden) is Tensor and hidden.dtype == torch.float32


def can_copy(linear: nn.Module) -> bool:
    """Return True for a linear map of stock PyTorch whose weight is on the CPU in single precision."""
    return is_stock(linear) and linear.weight.device.type == "cpu" and linear.weight.dtype == torch.float32


def is_stock(linear: nn.Module) -> TypeGuard[nn.Linear]:
    """Return True for a linear map of stock PyTorch that nothing adapts, quantizes, shards or watches."""
    return type(linear) is nn.Linear and type(linear.weight) is nn.Parameter and is_bare(linear)


# Copies by the module that has the maps, outside the model, so that they are neither saved nor moved.
COPIES: WeakKeyDictionary[nn.Module, WeightCopy] = WeakKeyDictionary()


def product_of(module: nn.Module, linears: Sequence[nn.Linear], wide: int) -> Callable[[Tensor], Tensor]:
    """Return a function that computes maps of a module, from copies of their weights if possible: (R, M) -> (R, N)."""
    maps = tuple((each.weight, each.bias) for each in linears)
    if not all(map(can_copy, linears)):
        return partial(plain_product, maps)
    copy = COPIES.get(module)
    if copy is None or copy.wide != wide or not copy.is_of(maps):
        copy = COPIES[module] = WeightCopy(wide)
    return partial(copy.product, maps)


class LinearStep:
    """Stand in for the forward of a linear map, from copies of its weight where nothing but numbers is computed."""

    def __init__(self, linear: nn.Linear, wide: int) -> None:
        self.linear, self.product = linear, product_of(linear, (linear,), wide)

    def __call__(self, hidden: Tensor) -> Tensor:
        if not is_plain(hidden) or not hidden.numel():
            return F.linear(hidden, self.linear.weight, self.linear.bias)
        return self.product(hidden.reshape(-1, hidden.shape[-1])).view(*hidden.shape[:-1], -1)


def is_bare(module: nn.Module) -> bool:
    """Return True for a module that nothing watches, whose forward is not replaced."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    watched = any(hook.__module__ != RECORDER for each in hooks for hook in each.values())
    return not ("forward" in vars(module) or watched)


def width_of_copies(model: nn.Module) -> int:
    """Return how many outputs for each input a map has that gets a copy: fewer in a model of fewer bytes."""
    linears = [cast(nn.Linear, each) for each in model.modules() if can_copy(each)]
    size = sum(each.weight.nbytes for each in linears)
    return 1 if size <= MOST_COPIED else WIDE


def head_steps(model: Any) -> dict[nn.Module, LinearStep]:
    """Return a step for the linear map that scores the vocabulary, unless there is something around it."""
    head = model.get_output_embeddings()
    return {head: LinearStep(head, width_of_copies(model))} if can_copy(head) else {}
