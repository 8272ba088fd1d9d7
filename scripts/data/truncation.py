"""Truncate texts to so many tokens, and count those that are longer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

WARNED, FITTING = 0.05, 0.95  # the share of truncated texts that is a warning, and of training texts that should fit
Tokenize = Callable[..., list[np.ndarray]]


def truncate(tokenize: Tokenize, texts: Sequence[str], length: int) -> tuple[list[np.ndarray], list[int]]:
    """Return the tokens of each text, of which at most `length` are kept, and how many it had."""
    rows = tokenize(texts)
    lengths = [len(row) for row in rows]
    long = [row for row, own in enumerate(lengths) if own > length]
    # By the tokenizer, which keeps the special tokens around a text.
    kept = tokenize([texts[row] for row in long], truncation=True, max_length=length) if long else []
    for row, tokens in zip(long, kept, strict=True):
        rows[row] = tokens
    return rows, lengths


def count_truncated(lengths: Mapping[str, Sequence[int]], length: int, field: str = "text.length") -> dict[str, Any]:
    """Return how many texts of each split, by their lengths, were truncated, and the length that most would fit.

    `field` of a recipe sets the length; it is empty where nothing does.
    """
    cut = {split: sum(one > length for one in own) for split, own in lengths.items()}
    shares = {split: count / max(len(lengths[split]), 1) for split, count in cut.items()}
    enough = int(np.quantile(lengths["train"], FITTING, method="higher")) if lengths.get("train") else length
    return {"field": field, "length": length, "texts": cut, "share": shares, "enough": max(enough, length)}


def is_much(counts: Mapping[str, Any]) -> bool:
    """Tell whether so many texts of a split were truncated that it has to be said first."""
    return bool(max(counts["share"].values(), default=0) > WARNED)


def truncated_sentence(counts: Mapping[str, Any]) -> str:
    """Say how many texts were truncated, and which value of the field would leave most whole; empty for none."""
    shares, field = counts.get("share", {}), counts.get("field")
    some = [f"{count:,} of the {split} split ({100 * shares[split]:.2f} %)"
            for split, count in counts.get("texts", {}).items() if count]  # fmt: skip
    if not some:
        return ""
    longer = f"; {field}={counts['enough']} would leave {100 * FITTING:.0f} % of the training texts whole"
    told = f"Texts were truncated to {f'{field}=' * bool(field)}{counts['length']} tokens: {', '.join(some)}"
    return told + (longer if field and counts["enough"] > counts["length"] else "") + "."
