"""The committed cards of recipes."""

import json
from pathlib import Path
from typing import Any

from qkv.scripts.common.files import RECORD

CARDS = Path(__file__).parents[2] / "model_cards"


def read_card(name: str) -> dict[str, Any] | None:
    """Return the record of a recipe's committed card, if there is one."""
    path = CARDS / name / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
