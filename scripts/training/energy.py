"""How much energy does a training take? What the processors count themselves (RAPL), where Linux lets us read it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator

POWERCAP = Path("/sys/class/powercap")


@dataclass
class Counter:
    """One processor's count of the microjoules it took, which starts again from 0 after `limit`."""

    name: str
    path: Path
    limit: int
    last: int
    total: int = 0

    def note(self) -> None:
        """Add what was counted since the last time."""
        now = int(self.path.read_text())
        self.total += now - self.last + (self.limit if now < self.last else 0)
        self.last = now


class Energy:
    """Joules since it was made, of whole processors, whoever else they worked for; none where they may not be read.

    `note` must be called now and then: a counter is back at 0 after some minutes of full load.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = root or POWERCAP
        folders = sorted(folder for folder in root.glob("intel-rapl:*") if folder.name.count(":") == 1)
        try:
            found = [opened(folder) for folder in folders]
        except (OSError, ValueError):  # most systems let only root read them
            found = []
        # Beside the processors there may be a count of the whole machine, which includes theirs.
        self.counters = [counter for counter in found if counter.name.startswith("package")]

    @classmethod
    def of(cls, accelerator: Accelerator) -> "Energy":
        """That of a training, with no counters where the processors of this machine are not all that works for it."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == accelerator.num_processes
        energy = cls()
        if not here or accelerator.device.type != "cpu":
            energy.counters.clear()
        return energy

    def note(self) -> None:
        """Read the counters."""
        for counter in self.counters:
            counter.note()

    def read(self) -> dict[str, Any] | None:
        """Joules so far and whose they are; None when nothing was measured."""
        self.note()
        if not self.counters:
            return None
        joules = sum(counter.total for counter in self.counters) / 1e6
        return {"training_j": round(joules, 1), "counters": [counter.name for counter in self.counters]}


def opened(folder: Path) -> Counter:
    """The counter in a folder of Linux's powercap; OSError where it may not be read."""
    path = folder / "energy_uj"
    limit = int((folder / "max_energy_range_uj").read_text())
    return Counter((folder / "name").read_text().strip(), path, limit, int(path.read_text()))
