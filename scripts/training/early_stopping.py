"""Stop a training when a metric no longer improves, and remember its best step."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

# Metrics to minimise.
LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte", "wer", "cer", "mae", "rmse")


@dataclass
class EarlyStopping:
    """Track the best value of a metric such as `validation accuracy`; without a metric the latest is the best.

    `waited` counts the evaluations since the best step, whose metrics are the `results`.
    """

    metric: str | None = None
    patience: int | None = None
    best: float | None = None
    step: int = 0
    waited: int = 0
    results: dict[str, dict[str, float]] = field(default_factory=dict)

    def update(self, step: int, results: dict[str, dict[str, float]]) -> bool:
        """Record an evaluation, and return whether it is the best so far, of equal ones that of the lowest loss.

        Any number is better than NaN.
        """
        values = {f"{split} {name}": value for split, metrics in results.items() for name, value in metrics.items()}
        if self.metric is not None and self.metric not in values:
            raise ValueError(f"watch={self.metric!r} is not among what is measured: {', '.join(values)}")
        value = None if self.metric is None else values[self.metric]
        split, _, name = str(self.metric).partition(" ")
        is_error = name.partition(" of ")[0] in LOWER_IS_BETTER  # perhaps of one task of several
        best, sign = math.nan if self.best is None else self.best, -1 if is_error else 1
        loss, least = (own.get(split, {}).get("loss", 0.0) for own in (results, self.results))
        if math.isnan(best) or value is None or (sign * value, -loss) > (sign * best, -least):
            self.best, self.step, self.waited, self.results = value, step, 0, results
            return True
        self.waited += 1
        return False

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation; None without a metric, or before the first evaluation."""
        return None if self.metric is None else self.step or None

    @property
    def sentence(self) -> str:
        """The best value so far and its step; empty before there is one."""
        known = self.best_step and self.best is not None
        return f"best {self.metric} {self.best:.4f} at step {self.step}" if known else ""

    @property
    def should_stop(self) -> bool:
        """True after `patience` evaluations without a better one."""
        return self.patience is not None and self.waited >= self.patience


def check_metric(metric: str | None, splits: Iterable[str]) -> None:
    """Raise ValueError for a metric of a split that is not evaluated during training."""
    known = [name for name in splits if name != "test"]
    if metric is not None and metric.partition(" ")[0] not in known:
        raise ValueError(
            f"watch={metric!r} is of no split that is evaluated during training: {', '.join(known) or 'none'}; write "
            "for example watch='validation loss', and a holdout where the data has no such split"
        )
