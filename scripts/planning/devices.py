"""Peak figures of devices from vendors' data sheets, and the time of a step that follows from them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qkv.scripts.common.resources import table

if TYPE_CHECKING:  # the arguments of `qkv plan` name devices without torch
    from qkv.scripts.planning.collectives import Collective


@dataclass(frozen=True)
class Device:
    """Peak dense FLOP/s by precision, bytes of memory, and bytes per second that it sends one way.

    `near` is the bandwidth to its neighbours in a node, `far` that of its own port to other nodes.
    """

    name: str
    bf16: float
    fp32: float
    memory: float
    near: float
    far: float

    def seconds(self, collective: "Collective") -> float:
        """Return how long a collective takes, latency apart.

        Rings run side by side, one through each port of a node, and share the bytes.
        """
        inside = collective.devices == collective.per_node
        return collective.sent / (self.near if inside else min(self.near, self.far * collective.per_node))


DEVICES = {word: Device(**figures) for word, figures in table(__file__).items()}


@dataclass(frozen=True)
class Estimate:
    """The time of a training, in seconds per step, if devices reach `utilization` of their peak.

    `communication` overlaps with `computation`; `blocking` communication does not. `hours` are those of all steps, None
    where their number is unknown.
    """

    device: str
    utilization: float
    computation: float
    communication: float
    blocking: float
    steps: int | None
    step: float
    hours: float | None
