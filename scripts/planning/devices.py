"""What can a device do? Peaks from vendors' data sheets, and what follows from them for the time of a training."""

from dataclasses import asdict, dataclass
from typing import Any

from qkv.scripts.planning.collectives import Collective

# What large trainings are reported to reach of the peak: 21 % to 46 %.
# Source: Chowdhery et al. 2022, table 3, https://arxiv.org/abs/2204.02311
UTILIZATION = 0.4


@dataclass(frozen=True)
class Device:
    """Peak dense FLOP/s by precision, bytes of memory, and bytes a second that it sends one way.

    `near` goes to its neighbours in a node, `far` is its own port to other nodes.
    """

    name: str
    bf16: float
    fp32: float
    memory: float
    near: float
    far: float

    def seconds(self, sent: Collective) -> float:
        """How long a collective takes, without the time until its first byte arrives.

        Rings run side by side, one through each port of a node, and share the bytes.
        """
        inside = sent.devices == sent.together
        return sent.sent / (self.near if inside else min(self.near, self.far * sent.together))


# Data sheets name the peak of sparse products, twice that of dense ones, and the sum of both ways of NVLink.
# Sources: of A100 nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf at www.nvidia.com; of H100 table 2 of
#   https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper; of H200, the same chip with more memory,
#   and of the ports of its nodes, NVIDIA's systems in https://github.com/mlcommons/inference_results_v4.1.
DEVICES = {
    "a100": Device("A100 80 GB", bf16=312e12, fp32=19.5e12, memory=80e9, near=300e9, far=25e9),
    "h100": Device("H100 80 GB", bf16=989.4e12, fp32=66.9e12, memory=80e9, near=450e9, far=50e9),
    "h200": Device("H200 141 GB", bf16=989.4e12, fp32=66.9e12, memory=141e9, near=450e9, far=50e9),
}


@dataclass(frozen=True)
class Estimate:
    """How long a training takes, if devices reach `utilization` of their peak.

    `sending` goes on beside computing; for `waiting` the next layer needs what is sent.
    """

    device: str
    utilization: float
    computing: float
    sending: float
    waiting: float
    steps: int | None

    @property
    def step(self) -> float:
        """Seconds for a step."""
        return max(self.computing, self.sending) + self.waiting

    @property
    def hours(self) -> float | None:
        """Hours for all steps; None where nobody said how many."""
        return None if self.steps is None else self.step * self.steps / 3600

    def plain(self) -> dict[str, Any]:
        """It as JSON."""
        return {**asdict(self), "step": self.step, "hours": self.hours}
