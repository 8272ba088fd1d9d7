"""The table of checks: which models each is for, its claim, the reports it would have caught, and a program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from qkv.scripts.common.files import table
from qkv.scripts.conformance import (
    attention_checks,
    forward_checks,
    generation_checks,
    saving_checks,
    training_checks,
)
from qkv.scripts.conformance.outcomes import skip_if
from qkv.scripts.conformance.subject import WITHOUT_COMPILER, Subject

FUNCTIONS: dict[str, Any] = {}
for module in (attention_checks, forward_checks, generation_checks, saving_checks, training_checks):
    FUNCTIONS |= vars(module)
COMPILED = ("compiled", "exported")
NOT_OF_A_MODEL = {"transformers_version", "dtype", "architectures", "id2label", "label2id", "_name_or_path", "auto_map"}
START = """\
import torch
from {config_home} import {config}
from {home} import {name} as Class

STREAM = "{stream}"
torch.manual_seed(0)
torch.set_grad_enabled(False)
config = {config}({fields})
model = Class(config).eval()
for weight in model.parameters():  # so that every path shows
    weight.add_(0.1 * torch.randn_like(weight))
inputs = {inputs}
ids = inputs.get(STREAM)
"""


@dataclass(frozen=True)
class Check:
    """A check: kinds of models, issues that it would have caught, and a program that shows a failure."""

    name: str
    kinds: tuple[str, ...]
    program: str
    reports: str = ""

    @property
    def function(self) -> Callable[[Subject], None]:
        """Return the check itself, whose docstring is its claim."""
        found: Callable[[Subject], None] = FUNCTIONS[self.name]
        return found

    def run(self, subject: Subject) -> None:
        """Check a model; ConformanceError where it is silently wrong, SkipTest where nothing is promised."""
        skip_if(subject.kind not in self.kinds, f"not for {subject.kind}")
        with torch.compiler.set_stance("default" if self.name in COMPILED else WITHOUT_COMPILER):
            self.function(subject)

    def program_for(self, subject: Subject) -> str:
        """Return a program to be pasted that makes the model and shows the failure."""
        config = type(subject.config)
        inputs = ", ".join(f'"{key}": {random_tensor(value)}' for key, value in subject.batch().items())
        start = START.format(
            config_home=home(config), config=config.__name__, home=home(subject.cls), name=subject.cls.__name__,
            stream=subject.stream, fields=changed_fields(subject.config), inputs=f"{{{inputs}}}",
        )  # fmt: skip
        return start + self.program


def random_tensor(value: torch.Tensor) -> str:
    """Return the words that make a random input of the same shape."""
    if value.is_floating_point():
        return f"torch.randn{tuple(value.shape)}"
    return f"torch.randint(5, {int(value.max()) + 1}, {tuple(value.shape)})"


def home(named: Any) -> str:
    """Return the module from which people import a class."""
    package = str(named.__module__).partition(".")[0]
    return package if package in ("transformers", "qkv") else str(named.__module__)


def changed_fields(config: Any) -> str:
    """Return the fields that differ from the defaults, as arguments."""
    default = type(config)().to_dict()
    fields = {key: value for key, value in config.to_dict().items() if key not in NOT_OF_A_MODEL}
    return ", ".join(f"{key}={value!r}" for key, value in fields.items() if default.get(key) != value)


CHECKS = {name: Check(name, **row) for name, row in table(__file__)["checks"].items()}
