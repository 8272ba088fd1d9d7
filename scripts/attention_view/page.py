"""Write a page that shows attention: its data, styles and program in one file, which fetches nothing."""

import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from qkv.scripts.attention_view.stacks import Stack, colour_scale

FOLDER = Path(__file__).parent / "page"
LEVELS = 255  # steps of a weight


def page(title: str, stacks: Sequence[Stack], facts: Mapping[str, Any]) -> str:
    """Return the page as HTML; `facts` are its answer, notes and film.

    Tokens are data, never HTML: no `<` stands in it, and the program sets it as text alone. Nothing runs but the
    program itself, and nothing is fetched, by the page's content security policy.
    """
    return Template(resource("page.html")).substitute(
        title=escape(title),
        style=resource("page.css"),
        program=resource("page.js"),
        policy=content_policy(),
        data=as_json({"title": title, **page_data(stacks), **facts}),
    )


def content_policy() -> str:
    """Return the content security policy of every page: its program, styles and pictures alone."""
    program, style = (
        f"sha256-{b64encode(hashlib.sha256(resource(name).encode()).digest()).decode()}"
        for name in ("page.js", "page.css")
    )
    return (
        f"default-src 'none'; script-src '{program}'; style-src '{style}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


@cache
def resource(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def as_json(data: Any) -> str:
    """Return JSON that can stand in a script element: in ASCII, and without the signs that end or comment one."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(stacks: Sequence[Stack]) -> dict[str, Any]:
    """Return the stacks as the program reads them, which name sequences of positions by number."""
    sequences = list({id(each): each for stack in stacks for each in (stack.queries, stack.keys)}.values())
    numbers = {id(each): number for number, each in enumerate(sequences)}
    pictures = [each.picture and f"data:image/png;base64,{b64encode(each.picture).decode()}" for each in sequences]
    return {
        "sequences": [asdict(each) | {"picture": picture} for each, picture in zip(sequences, pictures, strict=True)],
        "stacks": [
            stack_data(stack) | {"queries": numbers[id(stack.queries)], "keys": numbers[id(stack.keys)]}
            for stack in stacks
        ],
    }


def stack_data(stack: Stack) -> dict[str, Any]:
    """Return a stack without its sequences: weights in 255 steps from the least of their row to the greatest.

    The least is at most 0: linear attention with rotations has weights below zero. A bit for each weight tells which
    are exactly 0, those of masked keys.
    """
    least, greatest = np.minimum(stack.weights.min(-1), 0), np.maximum(stack.weights.max(-1), 0)
    width = np.where(greatest > least, greatest - least, 1)[..., None]
    return {
        "name": stack.name,
        "layers": stack.layers,
        "heads": stack.heads,
        "columns": stack.weights.shape[-1],
        "scale": colour_scale(stack.weights),
        "masked": packed(np.packbits(stack.weights == 0)),
        "weights": packed(np.rint((stack.weights - least[..., None]) / width * LEVELS).astype("u1")),
        "least": packed(least.astype("<f4")),
        "greatest": packed(greatest.astype("<f4")),
        "entropy": stack.entropy.astype(float).round(3).tolist(),
        "distance": None if stack.distance is None else stack.distance.astype(float).round(3).tolist(),
    }


def packed(values: Any) -> str:
    """Return numbers as compressed bytes in base64, for `DecompressionStream("deflate")`."""
    return b64encode(zlib.compress(values.tobytes(), 9)).decode()
