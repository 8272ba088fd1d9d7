"""The table of checks: which models each is for, its claim, and the reports that it would have caught."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc

import torch

from qkv.scripts.conformance.outcomes import skip_if
from qkv.scripts.conformance.subject import WITHOUT_COMPILER, Subject

TEXT = ("decoder", "encoder", "seq2seq")
WRITERS = ("decoder", "seq2seq")
EVERY = (*TEXT, "image", "speech", "pair")


@dataclass(frozen=True)
class Check:
    """A check by its name: kinds of models, the claim, and reports that it would have caught."""

    name: str
    kinds: tuple[str, ...]
    claim: str
    reports: str
    function: Callable[[Subject], None]

    def run(self, subject: Subject) -> None:
        """Check a model; ConformanceError where it is silently wrong, SkipTest where nothing is promised."""
        skip_if(subject.kind not in self.kinds, f"not for {subject.kind}")
        stance = "default" if self.name in ("compiled", "exported") else WITHOUT_COMPILER
        with torch.compiler.set_stance(stance):
            self.function(subject)


CHECKS: dict[str, Check] = {}


def check(*kinds: str, reports: str = "") -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Put a function into the table of checks; the first line of its docstring is its claim."""

    def register(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        claim = cleandoc(function.__doc__ or "").splitlines()[0].removeprefix("Check that ").rstrip(".")
        CHECKS[function.__name__] = Check(function.__name__, kinds, claim, reports, function)
        return function

    return register
