"""Show the progress of a training: a bar on a terminal and in a notebook, lines where the output is a file."""

import sys
import time

from tqdm import tqdm

from qkv.scripts.common.phases import is_first_process, say

# Seconds between two lines, and their share of the time so far: the log of a long training stays short.
SHORTEST, LONGEST, SHARE = 2.0, 60.0, 0.02
LINE = "step {n_fmt} of {total_fmt}{postfix}, {rate_fmt}, {remaining} left"


class ProgressBar:
    """A bar of tqdm; in a file the first step, the last, and steps between at growing intervals."""

    clock = staticmethod(time.monotonic)

    def __init__(self, name: str, total: int, done: int = 0) -> None:
        self.total, self.done = total, done
        self.began, self.printed, self.last = self.clock(), float("-inf"), (done, "")
        is_bar = is_first_process() and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        # ASCII, and not tqdm's bar for notebooks, which shows nothing without ipywidgets.
        options = {"unit": "step", "ascii": " #", "dynamic_ncols": True, "file": sys.stderr, "disable": not is_bar}
        self.bar = tqdm(desc=name, total=total, initial=done, **options)

    def update(self, step: int, state: str) -> None:
        """Show that so many steps are taken, and the state of the training after them."""
        self.bar.set_postfix_str(state, refresh=False)
        self.bar.update(step - self.bar.n)
        if self.bar.disable:
            self.print(step, state, self.clock() - self.began)

    def print(self, step: int, state: str, seconds: float) -> None:
        """Print a line after so many seconds, unless one was printed a moment ago."""
        pause = min(max(SHARE * seconds, SHORTEST), LONGEST)
        if seconds - self.printed >= pause or (step == self.total and (step, state) != self.last):
            self.printed, self.last = seconds, (step, state)
            shown = {"postfix": state, "unit": "step", "initial": self.done, "bar_format": LINE}
            say(tqdm.format_meter(step, self.total, seconds, **shown))

    def close(self) -> None:
        """End the bar."""
        self.bar.close()
