"""How do tables and numbers look on a card?"""

from collections.abc import Iterable, Sequence

# Metrics that are no share of anything.
PLAIN = ("loss", "perplexity", "bits_per_byte", "bleu", "chrf", "examples_per_second")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(name: str, value: float | None) -> str:
    """A metric for people: losses and the like as they are, shares in percent."""
    if value is None:
        return ""
    return f"{value:.4f}" if name in PLAIN else f"{100 * value:.2f} %"
