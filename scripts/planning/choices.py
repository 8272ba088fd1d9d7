"""The choices of a plan, known without torch."""

from typing import Literal

Strategy = Literal["ddp", "fsdp2", "tp", "zero2", "zero3"]
Precision = Literal["fp32", "bf16"]
# Devices of a node have fast links to each other.
NODE = 8
# What large trainings are reported to reach of a device's peak: 21 % to 46 %.
# Source: Chowdhery et al. 2022, table 3, https://arxiv.org/abs/2204.02311
UTILIZATION = 0.4
