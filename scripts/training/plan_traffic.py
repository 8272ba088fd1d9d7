"""How much do devices send each other in a step? Collectives as they are called, and what a ring makes of them."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# By the operator: what it does, and where the whole tensor is: an argument, or -1 for the result.
OPERATORS = {
    "c10d.allreduce_": ("all-reduce", 0),
    "c10d._allgather_base_": ("all-gather", 0),
    "c10d._reduce_scatter_base_": ("reduce-scatter", 1),
    "_c10d_functional.all_reduce": ("all-reduce", 0),
    "_c10d_functional.all_reduce_": ("all-reduce", 0),
    "_c10d_functional.all_gather_into_tensor": ("all-gather", -1),
    "_c10d_functional.reduce_scatter_tensor": ("reduce-scatter", 0),
}
# How often a ring of n devices sends (n - 1) / n of the whole tensor.
ROUNDS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}


@dataclass
class Collective:
    """Calls of one kind among `devices`: bytes of the whole tensors, and those that each device sends.

    Source: ring algorithms: Patarasuk & Yuan 2009, §4, https://doi.org/10.1016/j.jpdc.2008.09.002
    """

    kind: str
    devices: int
    calls: int = 0
    bytes: int = 0

    @property
    def sent(self) -> float:
        """Bytes that each device sends, and receives."""
        return ROUNDS[self.kind] * self.bytes * (self.devices - 1) / self.devices

    def plain(self) -> dict[str, Any]:
        """It as JSON."""
        return {**asdict(self), "sent": self.sent}


class Traffic(TorchDispatchMode):
    """Notes every collective that is called while it is on.

    `reducers` is the number of devices that share an all-reduce; of the others the tensors tell.
    """

    def __init__(self, reducers: int) -> None:
        super().__init__()
        self.reducers = reducers
        self.found: dict[tuple[str, int], Collective] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = function(*args, **(kwargs or {}))
        known = OPERATORS.get(str(function).rpartition(".")[0])
        if known is not None:
            kind, where = known
            whole = size(result if where < 0 else args[where])
            sizes = [whole, *(size(part) for part in (*args[:2], result) if is_tensors(part))]
            devices = self.reducers if kind == "all-reduce" else whole // min(sizes)
            self.note(kind, devices, whole)
        return result

    def note(self, kind: str, devices: int, whole: int) -> None:
        """Add a call on a tensor of that many bytes; a group of one sends nothing."""
        if devices > 1:
            found = self.found.setdefault((kind, devices), Collective(kind, devices))
            found.calls += 1
            found.bytes += whole


def is_tensors(value: Any) -> bool:
    """Whether a value holds tensors."""
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))


def size(value: Any) -> int:
    """Bytes of a tensor, or of several."""
    return sum(leaf.nbytes for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
