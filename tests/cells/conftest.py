"""The page of all cells: `pytest tests/cells --page FILE`, from the seed of QKV_CELLS_SEED."""

import time

import cells_page
import pytest
from cell_models import SEED, STACKS, cells
from cells_page import Outcomes

from pages import made_with, page_of
from qkv.scripts.common.environment import commit, processor

BEGAN = time.monotonic()
OUTCOMES: Outcomes = {}


@pytest.fixture(scope="session")
def outcomes() -> Outcomes:
    """How each cell ended."""
    return OUTCOMES


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page of a session that ran all cells."""
    if (path := page_of(session)) and len(OUTCOMES) == sum(len(cells(stack)) for stack in STACKS):
        facts = {"made_with": made_with("torch", "transformers"), "processor": processor(), "commit": commit()}
        minutes = (time.monotonic() - BEGAN) / 60
        text = cells_page.page(OUTCOMES, seed=SEED, minutes=minutes, **facts)
        path.write_text(text, encoding="utf-8")
