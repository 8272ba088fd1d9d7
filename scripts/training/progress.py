"""Show how far a training is: a bar on a terminal and in a notebook, and lines where the output is a file."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text
from tqdm import tqdm

from qkv.scripts.common.phases import PREFIX, say

# Seconds between two lines, and their share of the time so far: a long training has no longer a log.
SHORTEST, LONGEST, SHARE = 2.0, 60.0, 0.02
# Columns of a line in a file, and what stands between the parts of a state.
WIDTH, GAP = 80, "  "


class Shown(Protocol):
    """A display of the progress while it is entered."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, step: int, state: str) -> None:
        """Show that so many steps are taken."""


class Silent:
    """Show nothing, in all processes but the main one."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, step: int, state: str) -> None:
        """Show nothing."""


class SpeedColumn(ProgressColumn):
    """The steps in a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """Return the speed of late, nothing before there is one."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.3g} {self.unit}s/s" if speed else "")


class StatedProgress(Progress):
    """A bar with the state of its task below it, on as many lines as that takes."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar and its state."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            for line in filled(task.fields["state"].split(GAP), self.console.width, ""):
                yield Text(line, no_wrap=True, overflow="ellipsis")


@dataclass
class TerminalBar:
    """Show a bar on a terminal."""

    name: str
    total: int
    console: Console
    unit: str = "step"

    def __post_init__(self) -> None:
        # The bar takes what the others leave of the line: a count that is cut off is of no use.
        columns = (BarColumn(bar_width=None), MofNCompleteColumn(), SpeedColumn(self.unit), TimeRemainingColumn())
        self.progress = StatedProgress(TextColumn("{task.description}"), *columns, console=self.console, expand=True)
        self.bar = self.progress.add_task(self.name, total=self.total, state="")

    def __enter__(self) -> "TerminalBar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, step: int, state: str) -> None:
        """Move the bar."""
        self.progress.update(self.bar, completed=step, state=state)


class NotebookBar:
    """Show a bar of text in a notebook: rich's, and tqdm's own for notebooks, are nothing without ipywidgets."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.bar: Any = None

    def __enter__(self) -> "NotebookBar":
        self.bar = tqdm(desc=self.name, total=self.total, file=sys.stderr, ascii=" #")
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def update(self, step: int, state: str) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.set_postfix_str(state, refresh=False)
            self.bar.update(step - self.bar.n)


@dataclass
class Lines:
    """Print a line now and then: the first and the last step, and between them ever more seldom.

    What is shown before it is entered are the steps that an earlier process took: they say nothing of its speed.
    """

    total: int
    clock: Callable[[], float] = time.monotonic
    first: int = 0
    began: float | None = None
    printed: float = float("-inf")
    last: tuple[int, str] = (0, "")
    unit: str = "step"

    def __enter__(self) -> "Lines":
        self.began = self.clock()
        return self

    def __exit__(self, *error: object) -> None:
        self.began = None

    def update(self, step: int, state: str) -> None:
        """Print a line, unless one was printed a moment ago."""
        if self.began is None:
            self.first = step
            return
        now = self.clock()
        pause = min(max(SHARE * (now - self.began), SHORTEST), LONGEST)
        ended = step == self.total and (step, state) != self.last
        if now - self.printed >= pause or ended:
            self.printed, self.last = now, (step, state)
            parts = [f"{self.unit} {step} of {self.total}", *state.split(GAP), *self.speed(step, now - self.began)]
            say("\n".join(filled(parts, WIDTH - len(PREFIX), " " * len(PREFIX))))

    def speed(self, step: int, seconds: float) -> list[str]:
        """Return the steps in a second and the time that is left, once a step was timed."""
        taken = step - self.first
        if taken <= 0 or seconds <= 0:
            return []
        left = round((self.total - step) * seconds / taken)
        return [f"{taken / seconds:.3g} {self.unit}s/s", f"{duration(left)} left"]


def filled(parts: Iterable[str], width: int, indent: str) -> list[str]:
    """Fill lines with parts, none of which is broken; all lines but the first are indented."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and len(lines[-1]) + len(GAP) + len(part) <= width + len(indent) * (len(lines) > 1):
            lines[-1] += GAP + part
        else:
            lines.append(indent * bool(lines) + part)
    return lines


def duration(seconds: int) -> str:
    """Return hours, minutes and seconds as clocks do."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def progress_display(name: str, total: int, *, is_main: bool, unit: str = "step") -> Shown:
    """Return what shows the progress of a training here, or of what counts in other units."""
    console = Console(stderr=True)
    if not is_main:
        return Silent()
    if console.is_jupyter:
        return NotebookBar(name, total)
    return TerminalBar(name, total, console, unit) if console.is_terminal else Lines(total, unit=unit)
