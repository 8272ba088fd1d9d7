"""The table of programs that are run on a model of ours and on the stock one: each a function of a model and a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import client_models
import pytest
from transformers import PreTrainedModel

Use = Callable[[Any, Path], Any]


@dataclass(frozen=True)
class Program:
    """A use of a program, and the model that it is used on: a kind, its Auto class and fields."""

    name: str
    what: str
    use: Use
    kind: str
    auto: Any
    fields: dict[str, Any]
    rtol: float

    def __str__(self) -> str:
        return f"{self.name}, {self.what}, {self.kind}"


def program(
    table: list[Program],
    name: str,
    what: str,
    heads: dict[str, Any],
    *,
    rtol: float = 1e-4,
    **fields: Any,
) -> Callable[[Use], Use]:
    """Enter the function below into a table, for models of some kinds."""

    def enter(use: Use) -> Use:
        table.extend(Program(name, what, use, kind, auto, fields, rtol) for kind, auto in heads.items())
        return use

    return enter


def installed(module: str) -> Any:
    """Import a program of others."""
    return pytest.importorskip(module, reason="`make clients` installs it", exc_type=ImportError)


def run(each: Program, folder: Path, side_by_side: Callable[..., None]) -> None:
    """Run a program of the table on both models."""
    both = client_models.both(each.kind, each.auto, **each.fields)
    side_by_side(each.name, each.what, lambda model: each.use(model, folder), *both, rtol=each.rtol)


def saved(model: PreTrainedModel, folder: Path) -> Path:
    """The folder of a model and its tokenizer."""
    path = folder / type(model).__name__
    model.save_pretrained(path)
    client_models.tokenizer().save_pretrained(path)
    return path
