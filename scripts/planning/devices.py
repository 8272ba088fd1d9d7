"""Peak figures of devices from vendors' data sheets, and the time of a step that follows from them."""

from dataclasses import asdict, dataclass
from typing import Any

from qkv.scripts.planning.collectives import Collective

# What large trainings are reported to reach of the peak: 21 % to 46 %.
# Source: Chowdhery et al. 2022, table 3, https://arxiv.org/abs/2204.02311
UTILIZATION = 0.4


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

    def seconds(self, collective: Collective) -> float:
        """Return how long a collective takes, latency apart.

        Rings run side by side, one through each port of a node, and share the bytes.
        """
        inside = collective.devices == collective.per_node
        return collective.sent / (self.near if inside else min(self.near, self.far * collective.per_node))


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
    """The time of a training, in seconds per step, if devices reach `utilization` of their peak.

    `communication` overlaps with `computation`; `blocking` communication does not.
    """

    device: str
    utilization: float
    computation: float
    communication: float
    blocking: float
    steps: int | None

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return max(self.computation, self.communication) + self.blocking

    @property
    def hours(self) -> float | None:
        """Hours of all steps; None where their number is unknown."""
        return None if self.steps is None else self.step * self.steps / 3600

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "step": self.step, "hours": self.hours}
