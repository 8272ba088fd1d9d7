"""When is a training good enough to stop, and when was it best? One metric of one split is watched."""

from collections.abc import Mapping
from dataclasses import dataclass

# Of these the smaller is the better.
FALLING = ("loss", "perplexity", "bits_per_byte", "wer", "cer")


@dataclass
class Watch:
    """The best value so far of a metric such as `validation accuracy`, and for how many evaluations it has stood."""

    metric: str
    patience: int | None = None
    best: float | None = None
    step: int = 0
    waited: int = 0

    def note(self, step: int, results: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether these results are the best so far; ValueError when the metric is not among them."""
        found = {f"{split} {name}": value for split, metrics in results.items() for name, value in metrics.items()}
        if self.metric not in found:
            raise ValueError(f"watch={self.metric!r} is not among what is measured: {', '.join(found)}")
        value = found[self.metric]
        if self.best is None or self.better(value, self.best):
            self.best, self.step, self.waited = value, step, 0
            return True
        self.waited += 1
        return False

    def better(self, value: float, other: float) -> bool:
        """Whether one value is better than another."""
        return value < other if self.metric.rpartition(" ")[2] in FALLING else value > other

    @property
    def exhausted(self) -> bool:
        """Whether as many evaluations have passed without a better one as patience allows."""
        return self.patience is not None and self.waited >= self.patience
