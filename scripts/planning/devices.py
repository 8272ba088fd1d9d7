"""The choices of a plan, and peak figures of devices from vendors' data sheets, known without torch."""

from dataclasses import dataclass
from typing import Literal

from qkv.scripts.common.resources import table

Strategy = Literal["ddp", "fsdp2", "tp"]
Precision = Literal["fp32", "bf16"]
NODE = 8  # devices with fast links to each other
# Share of a device's peak that large trainings are reported to reach: 21 % to 46 %.
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


DEVICES = {word: Device(**figures) for word, figures in table(__file__).items()}
