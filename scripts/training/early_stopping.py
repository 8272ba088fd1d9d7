"""When is a training good enough to stop, and when was it best? One metric of one split is watched."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Of these the smaller is the better.
FALLING = ("loss", "perplexity", "bits_per_byte", "wer", "cer")


@dataclass
class Watch:
    """The best value so far of a metric such as `validation accuracy`, and for how many evaluations it has stood.

    Without a metric the latest is the best.
    """

    metric: str | None = None
    patience: int | None = None
    best: float | None = None
    step: int = 0
    waited: int = 0
    # What was found at the best step.
    results: dict[str, dict[str, float]] = field(default_factory=dict)

    def note(self, step: int, results: dict[str, dict[str, float]]) -> bool:
        """Whether these results are the best so far; ValueError when the metric is not among them."""
        value = self.value(results)
        if self.best is None or value is None or self.better(value, self.best):
            self.best, self.step, self.waited, self.results = value, step, 0, results
            return True
        self.waited += 1
        return False

    def value(self, results: Mapping[str, Mapping[str, float]]) -> float | None:
        """The metric that is watched."""
        found = {f"{split} {name}": value for split, metrics in results.items() for name, value in metrics.items()}
        if self.metric is not None and self.metric not in found:
            raise ValueError(f"watch={self.metric!r} is not among what is measured: {', '.join(found)}")
        return None if self.metric is None else found[self.metric]

    def better(self, value: float, other: float) -> bool:
        """Whether one value is better than another."""
        return value < other if str(self.metric).rpartition(" ")[2] in FALLING else value > other

    @property
    def exhausted(self) -> bool:
        """Whether as many evaluations have passed without a better one as patience allows."""
        return self.patience is not None and self.waited >= self.patience

    def state(self) -> dict[str, Any]:
        """What is known so far, as JSON."""
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in ("best", "step", "waited", "results"):
            setattr(self, name, state[name])


def refuse_unwatched(metric: str | None, splits: Iterable[str]) -> None:
    """Raise ValueError for a metric of a split that is not evaluated on the way."""
    known = [name for name in splits if name != "test"]
    if metric is not None and metric.partition(" ")[0] not in known:
        raise ValueError(
            f"watch={metric!r} is of no split that is evaluated on the way: {', '.join(known) or 'none'}; give "
            'one such as "validation loss", with a holdout where the data has no such split'
        )
