"""Count the collectives that a step calls, and the bytes that a ring of devices sends for them."""

from dataclasses import dataclass
from typing import Any

from torch import ScriptObject, Tensor
from torch.distributed import ProcessGroup, get_process_group_ranks
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from qkv.scripts.common.files import table

TABLES = table(__file__)
OPERATORS: dict[str, tuple[str, int, int]] = TABLES["operators"]
ROUNDS: dict[str, int] = TABLES["rounds"]


@dataclass
class Collective:
    """Calls of one kind among `devices`: the `bytes` of the whole tensors, and those that each device sends, as many
    as it receives.

    Source: ring algorithms: Patarasuk & Yuan 2009, §4, https://doi.org/10.1016/j.jpdc.2008.09.002
    """

    kind: str
    devices: int
    calls: int = 0
    bytes: int = 0
    sent: float = 0

    def add(self, size: int, calls: int = 1) -> None:
        """Add calls on tensors of `size` bytes."""
        self.calls += calls
        self.bytes += calls * size
        self.sent = ROUNDS[self.kind] * self.bytes * (self.devices - 1) / self.devices


class CommunicationTracker(TorchDispatchMode):
    """Count every collective while active, each call `times` times.

    torch's CommDebugMode counts calls without bytes and groups.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times = 1
        self.collectives: dict[tuple[str, str], Collective] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = function(*args, **(kwargs or {}))
        if operator := OPERATORS.get(str(function).rpartition(".")[0]):
            kind, tensor, place = operator
            boxed = isinstance(args[place], ScriptObject)  # or named
            group = ProcessGroup.unbox(args[place]) if boxed else _resolve_process_group(args[place])
            whole = tree_leaves(result if tensor < 0 else args[tensor])
            self.add(kind, group, sum(leaf.nbytes for leaf in whole if isinstance(leaf, Tensor)))
        return result

    def add(self, kind: str, group: ProcessGroup, whole: int) -> None:
        """Add calls on a tensor of `whole` bytes, unless the group has one process."""
        ranks = get_process_group_ranks(group)
        if len(ranks) > 1:
            found = self.collectives.setdefault((kind, group.group_name), Collective(kind, len(ranks)))
            found.add(whole, self.times)
