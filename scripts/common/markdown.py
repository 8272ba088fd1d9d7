"""How do tables and numbers look on a card?"""

from collections.abc import Iterable, Sequence

# Metrics that are no share of anything.
PLAIN = (
    "loss",
    "perplexity",
    "bits_per_byte",
    "bits_per_pixel",
    "bits_per_event",
    "bleu",
    "chrf",
    "examples_per_second",
)
SECONDS = "seconds"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(name: str, value: float | None) -> str:
    """A metric for people: losses and the like as they are, shares in percent."""
    if value is None:
        return ""
    if name == SECONDS:
        return f"{value:.0f}"
    return f"{value:.4f}" if name in PLAIN else f"{100 * value:.2f} %"


def ranged(name: str, values: Sequence[float]) -> str:
    """The mean of a metric over some runs, and the least and greatest where there are several."""
    mean, least, greatest = (shown(name, value) for value in (sum(values) / len(values), min(values), max(values)))
    return mean if len(values) == 1 else f"{mean} ({least.removesuffix(' %')} to {greatest.removesuffix(' %')})"
