"""The page of what other programs do with our models and with stock ones: `pytest tests/clients --page FILE`."""

import os
from collections.abc import Callable
from importlib.metadata import Distribution
from typing import Any

import pytest
from torch.testing import assert_close

from pages import made_with, page_of

HEAD = """# Other programs

<!-- Written by `make clients`. Change tests/clients, never this file. -->

Each row is a program of others on a model of ours, and on the same weights in the class of transformers: what both give
is compared, at 1e-4 unless the program rounds. Of recurrent models and audio encoders transformers has no such class.

{versions}

| program | what | converted from | qkv | transformers | results |
| --- | --- | --- | --- | --- | --- |
"""
ROWS: list[str] = []
PROGRAMS = (
    "torch transformers peft trl sentence-transformers setfit lm-eval onnxruntime captum torchao lightning "
    "bitsandbytes bertviz gradio openai gguf"
).split()


def outcome(side: str, given: dict[str, Any], failed: dict[str, Exception]) -> str:
    """The word for a side: that there is none, that it works, or how it failed."""
    return f"failed: {type(failed[side]).__name__}" if side in failed else "works" if side in given else "–"


@pytest.fixture
def side_by_side() -> Callable[..., None]:
    """Run a program on a model of ours and on the stock one; what both give must be equal, and ours must work."""

    def run(
        program: str,
        what: str,
        use: Callable[[Any], Any],
        ours: Any,
        stock: Any,
        rtol: float = 1e-4,
        refusable: bool = False,
    ) -> None:
        """A program may refuse both, in the same words, where `refusable` says so; there may be no stock model."""
        given, failed = {}, {}
        for side, model in (("qkv", ours), ("transformers", stock)):
            if model is None:
                continue
            try:
                given[side] = use(model)
            except Exception as error:
                failed[side] = error
        words = [outcome(side, given, failed) for side in ("qkv", "transformers")]
        equal = "–"
        if len(failed) == 2:
            equal = "both: " + (str(failed["transformers"]).splitlines() or [""])[0].replace("|", "\\|")
        if len(given) == 2:
            assert_close(given["qkv"], given["transformers"], rtol=rtol, atol=rtol)
            equal = "equal"
        source = f"– ({type(ours).__name__})" if stock is None else type(stock).__name__
        ROWS.append(f"| {program} | {what} | {source} | {' | '.join(words)} | {equal} |")
        refused = refusable and len({type(error) for error in failed.values()}) == 1 and len(failed) == 2
        if "qkv" in failed and not refused:
            raise failed["qkv"]

    return run


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page."""
    if path := page_of(session):
        source = Distribution.at(os.environ["LLAMA_CPP_SOURCE"])
        versions = f"llama.cpp of {source.name} {source.version}, {made_with(*PROGRAMS)}"
        path.write_text(HEAD.format(versions=versions) + "\n".join(ROWS) + "\n", encoding="utf-8")
