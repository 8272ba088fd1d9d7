"""How do tables and numbers look on a card?"""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(name: str, value: float | None) -> str:
    """A metric for people: losses as they are, shares in percent."""
    if value is None:
        return ""
    return f"{value:.4f}" if name == "loss" else f"{100 * value:.2f} %"
