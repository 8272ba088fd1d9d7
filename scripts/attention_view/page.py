"""Write a page that shows attention: its data, styles and program in one file, which fetches nothing."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from qkv.scripts.attention_view.positions import Positions
from qkv.scripts.attention_view.reduction import packed, quantise
from qkv.scripts.attention_view.stacks import Stack, Weights

FOLDER = Path(__file__).parent / "page"
# In the order in which they need each other.
PROGRAM = ("core.js", "drawing.js", "matrix.js", "tokens.js", "keys.js", "film.js", "main.js")


def page(title: str, stacks: Sequence[Stack], facts: Mapping[str, Any]) -> str:
    """Return the page as HTML; `facts` are its answer, notes and film.

    What tokens say is data, never HTML: no `<` stands in it, and the program sets it as text alone. Nothing runs but
    the program itself, and nothing is fetched, by the page's content security policy.
    """
    return Template(resource("page.html")).substitute(
        title=escape(title),
        style=resource("page.css"),
        program=program(),
        policy=content_policy(),
        data=as_json({"title": title, **page_data(stacks), **facts}),
    )


def content_policy() -> str:
    """Return the content security policy of every page: nothing but its own program, styles and pictures."""
    program_hash, style_hash = content_hash(program()), content_hash(resource("page.css"))
    return (
        f"default-src 'none'; script-src '{program_hash}'; style-src '{style_hash}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def program() -> str:
    """Return the program of every page."""
    return "\n".join(map(resource, PROGRAM))


@cache
def resource(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """Return the hash of an element's text as a content security policy names it."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def as_json(data: Any) -> str:
    """Return JSON that can stand in a script element: in ASCII, and without what ends or comments one."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(stacks: Sequence[Stack]) -> dict[str, Any]:
    """Return the stacks as the program reads them, which name sequences of positions by number."""
    sequences = list({id(each): each for stack in stacks for each in (stack.queries, stack.keys)}.values())
    numbers = {id(each): number for number, each in enumerate(sequences)}
    return {
        "sequences": [sequence_data(each) for each in sequences],
        "stacks": [
            stack_data(stack) | {"queries": numbers[id(stack.queries)], "keys": numbers[id(stack.keys)]}
            for stack in stacks
        ],
    }


def stack_data(stack: Stack) -> dict[str, Any]:
    """Return a stack without its sequences: weights in 255 steps from the least to the greatest of their row."""
    shares, least, greatest = quantise(stack.weights)
    return {
        "name": stack.name,
        "layers": stack.layers,
        "heads": stack.heads,
        "columns": stack.weights.shape[-1],
        "weights": packed(shares),
        "least": packed(least),
        "greatest": packed(greatest),
        "entropy": rounded(stack.entropy),
        "distance": None if stack.distance is None else rounded(stack.distance),
    }


def rounded(values: Weights) -> list[list[float]]:
    """Return numbers by layer and head with as many digits as are read."""
    return [[round(float(value), 3) for value in row] for row in values]


def sequence_data(positions: Positions) -> dict[str, Any]:
    """Return a sequence of positions, its picture as a data URL."""
    picture = positions.picture
    return {
        "kind": positions.kind,
        "labels": positions.labels,
        "grid": positions.grid,
        "prefix": positions.prefix,
        "boxes": positions.boxes,
        "rest": positions.rest,
        "picture": None if picture is None else f"data:image/png;base64,{b64encode(picture).decode()}",
    }
