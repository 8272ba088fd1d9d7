"""Decide when a checkpoint is due by the clock: soon enough for what may be lost, seldom enough for what it costs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# The share of the time that saving by the clock may take.
SHARE = 0.03


@dataclass
class SavePace:
    """Tell at each step whether to save after it, so that a kill loses at most `limit` seconds of work.

    It waits longer only where saving would take more than its `SHARE` of the time.
    """

    limit: float | None
    clock: Callable[[], float] = time.monotonic
    seconds: dict[str, float] = field(default_factory=dict)
    saved: float = field(init=False)
    asked: float = field(init=False)
    apart: float = 0.0

    def __post_init__(self) -> None:
        self.saved = self.asked = self.clock()

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Take the time of an evaluation or a save; the last of each counts."""
        began = self.clock()
        yield
        self.seconds[what] = self.clock() - began
        self.apart += self.seconds[what]
        if what == "save":
            self.saved = began

    def due(self, evaluations: int = 0) -> bool:
        """Tell at the start of a step whether to save after it; `evaluations` are those after this step and the next.

        At the next start it would be too late, if the save after that step ended beyond the limit.
        """
        if self.limit is None:
            return False
        now = self.clock()
        # The half of what it was, for one short step says little of the next.
        self.seconds["step"] = max(now - self.asked - self.apart, self.seconds.get("step", 0.0) / 2)
        self.asked, self.apart = now, 0.0
        save = self.seconds.get("save", 0.0)
        ahead = 2 * self.seconds["step"] + evaluations * self.seconds.get("evaluation", 0.0) + save
        return now - self.saved >= max(self.limit - ahead, save / SHARE)
