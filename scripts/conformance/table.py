"""The table of checks: which models each is for, its claim, the reports it would have caught, and a program."""

import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from qkv.scripts.common.files import table
from qkv.scripts.conformance import attention_checks, forward_checks, generation_checks, saving_checks, training_checks
from qkv.scripts.conformance.outcomes import ConformanceError, Limit, NotApplicable, skip_if
from qkv.scripts.conformance.subject import WITHOUT_COMPILER, Subject

TABLE = table(__file__)
COMPILED = ("compiled", "exported")
NOT_OF_A_MODEL = {"transformers_version", "dtype", "architectures", "id2label", "label2id", "_name_or_path", "auto_map"}
STATUS: dict[type[BaseException], str] = {ConformanceError: "FAILED", Limit: "limit", NotApplicable: "–"}
WRONG = ("FAILED", "error")


@dataclass(frozen=True)
class Check:
    """A check: kinds of models, a program that shows a failure, issues that it would have caught."""

    name: str
    function: Callable[[Subject], None]
    kinds: tuple[str, ...]
    program: str
    reports: str = ""

    def once(self, subject: Subject) -> tuple[str, str]:
        """Check a model once, and return status and reason."""
        stance = "default" if self.name in COMPILED else WITHOUT_COMPILER
        try:
            skip_if(subject.kind not in self.kinds, f"not for {subject.kind}")
            with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                warnings.simplefilter("ignore")
                with torch.compiler.set_stance(stance):
                    self.function(subject)
        except Exception as error:  # a model that refuses, by whatever error, is not silently wrong
            status, text = STATUS.get(type(error), "error"), " ".join(str(error).split())
            place = traceback.extract_tb(error.__traceback__)[-1]
            loud = f"{type(error).__name__}: {text[:150]} ({Path(place.filename).name}:{place.lineno})"
            return status, loud if status == "error" else text
        return "passed", ""

    def outcome(self, subject: Subject) -> tuple[str, str]:
        """Return status and reason; a failure counts if other weights and inputs show it again."""
        status, reason = self.once(subject)
        if status in WRONG and self.once(subject.again)[0] not in WRONG:
            return "passed", f"not with other weights and inputs: {reason}"
        return status, reason

    def __call__(self, subject: Subject) -> None:
        """Check a model for pytest: raise what `qkv conform` reports."""
        status, reason = self.outcome(subject)
        if status in WRONG:
            shown = f"\n{self.program_for(subject)}" if status == "FAILED" else ""
            raise ConformanceError(f"{self.name}: {reason}{shown}")
        skip_if(status != "passed", reason)

    def program_for(self, subject: Subject) -> str:
        """Return a program to be pasted that makes the model and shows the failure."""
        config, default = subject.config, type(subject.config)().to_dict()
        fields = {key: value for key, value in config.to_dict().items() if key not in NOT_OF_A_MODEL}
        changed = ", ".join(f"{key}={value!r}" for key, value in fields.items() if default.get(key) != value)
        inputs = ", ".join(f'"{key}": {random_tensor(value)}' for key, value in subject.batch().items())
        start: str = TABLE["start"].format(
            config_home=home(type(config)), config=type(config).__name__, home=home(subject.cls),
            name=subject.cls.__name__, stream=subject.stream, fields=changed, inputs=f"{{{inputs}}}",
        )  # fmt: skip
        return f"{start}{self.program}"


def random_tensor(value: torch.Tensor) -> str:
    """Return the words that make a random input of the same shape."""
    if value.is_floating_point():
        return f"torch.randn{tuple(value.shape)}"
    return f"torch.randint(5, {max(int(value.max()) + 1, 6)}, {tuple(value.shape)})"


def home(named: Any) -> str:
    """Return the module from which people import a class."""
    package = str(named.__module__).partition(".")[0]
    return package if package in ("transformers", "qkv") else str(named.__module__)


FUNCTIONS: dict[str, Any] = {}
for module in (attention_checks, forward_checks, generation_checks, saving_checks, training_checks):
    FUNCTIONS |= vars(module)
CHECKS = {name: Check(name, FUNCTIONS[name], **row) for name, row in TABLE["checks"].items()}
