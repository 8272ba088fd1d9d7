"""What can a device do? Peaks from vendors' data sheets, and what follows from them for the time of a training."""

from dataclasses import asdict, dataclass
from typing import Any

# What large trainings are reported to reach of the peak (Chowdhery et al. 2022, table 3: 21 % to 46 %).
UTILIZATION = 0.4


@dataclass(frozen=True)
class Device:
    """Peak dense FLOP/s by precision, bytes of memory, and bytes a second that it sends to its neighbours.

    `near` is within a node of `node` devices, `far` is a device's share of its node's network, as those are built most
    often; both one way.
    """

    name: str
    bf16: float
    fp32: float
    memory: float
    near: float
    far: float
    node: int = 8

    def bandwidth(self, devices: int) -> float:
        """Of a ring of that many neighbours: that of its slowest link."""
        return self.near if devices <= self.node else self.far


# Sources: NVIDIA's data sheets of A100, H100 and H200 (SXM); far: InfiniBand of 200 and 400 Gb/s for each device.
DEVICES = {
    "a100": Device("A100 80 GB", 312e12, 19.5e12, 80e9, 300e9, 25e9),
    "h100": Device("H100 80 GB", 989.4e12, 66.9e12, 80e9, 450e9, 50e9),
    "h200": Device("H200 141 GB", 989.4e12, 66.9e12, 141e9, 450e9, 50e9),
}


@dataclass(frozen=True)
class Estimate:
    """How long a training takes, if devices reach `utilization` of their peak and sending hides behind computing."""

    device: str
    utilization: float
    computing: float
    sending: float
    steps: int | None

    @property
    def step(self) -> float:
        """Seconds for a step."""
        return max(self.computing, self.sending)

    @property
    def hours(self) -> float | None:
        """Hours for all steps; None where nobody said how many."""
        return None if self.steps is None else self.step * self.steps / 3600

    def plain(self) -> dict[str, Any]:
        """It as JSON."""
        return {**asdict(self), "step": self.step, "hours": self.hours}
