"""Read pages of attention as a browser does: their data, and the weights in them."""

import base64
import json
import re
import zlib
from typing import Any

import numpy as np

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><b>",
    "<!--",
    "שלום",
    "\u202eabc",
    "👩\u200d🚀",
    "\u200b",
    "\ud800",
    "a\nb",
    "&amp;",
]


class HostileTokenizer:
    """A tokenizer whose tokens are what a page must not take for its own."""

    def decode(self, ids: list[int], **options: Any) -> str:
        return "".join(HOSTILE[number % len(HOSTILE)] for number in ids)

    def convert_ids_to_tokens(self, number: int) -> str:
        return HOSTILE[number % len(HOSTILE)]


DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)


def data_of(page: str) -> dict[str, Any]:
    """The data of a page, of which there is one element."""
    (text,) = DATA.findall(page)
    return json.loads(text)


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=dtype)


def weights_of(data: dict[str, Any], number: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights (layers, heads, queries, keys) of a stack, and the greatest magnitude of each row."""
    stack = data["stacks"][number]
    rows = len(data["sequences"][stack["queries"]]["labels"])
    shape = (len(stack["layers"]), max(len(stack["heads"]), 1), rows, stack["columns"])
    least, greatest = (unpacked(stack[name], "<f4").reshape(shape[:3])[..., None] for name in ("least", "greatest"))
    shown = least + unpacked(stack["weights"], "u1").reshape(shape) / 255 * (greatest - least)
    return shown, np.maximum(greatest, -least)[..., 0]
