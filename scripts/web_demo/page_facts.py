"""Facts about a model that its page shows, and the files of the page."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qkv.scripts.prediction.predictor import THRESHOLD
from qkv.scripts.prediction.source import Source
from qkv.scripts.web_demo.answers import reads_pairs
from qkv.scripts.web_demo.requests import (
    MOST_BYTES,
    MOST_CHARACTERS,
    MOST_LABELS,
    MOST_SECONDS,
    MOST_TOKENS,
)

FOLDER = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# Labels that a person can draw: one character, also as `save_pretrained` calls numbered classes.
DRAWN = re.compile(r"(LABEL_)?\w")


def static_files() -> dict[str, tuple[str, bytes]]:
    """Return type and content of each file of the page by its path in an address; there are no others."""
    files = {
        f"/{path.name}": (TYPES[path.suffix], path.read_bytes())
        for path in sorted(FOLDER.iterdir())
        if path.suffix in TYPES
    }
    return {"/": files["/page.html"], **files}


def facts(source: Source) -> dict[str, Any]:
    """Return what the page shows of a model before it is tried."""
    recipe: Mapping[str, Any] = source.record.get("recipe") or {}
    mask = source.tokenizer.mask_token if source.task == "fill-mask" else None
    labels = [str(label) for label in (getattr(source.model.config, "id2label", None) or {}).values()]
    return {
        "name": source.public_name,
        "class": type(source.model).__name__,
        "parameters": source.model.num_parameters(),
        "task": source.task,
        "medium": source.medium,
        "title": recipe.get("title", ""),
        "limits": recipe.get("limits", ""),
        "example": str(recipe.get("prompt") or "").replace("{mask}", mask or "{mask}"),
        "pairs": reads_pairs(source),
        "mask": mask,
        "draws": source.task == "image-classification" and all(map(DRAWN.fullmatch, labels)),
        "threshold": THRESHOLD,
        "most": {
            "bytes": MOST_BYTES * 3 // 4 - 2**16,  # base64 makes a file a third longer
            "characters": MOST_CHARACTERS,
            "labels": MOST_LABELS,
            "seconds": MOST_SECONDS,
            "tokens": MOST_TOKENS,
        },
    }
