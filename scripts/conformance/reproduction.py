"""The smallest program that shows a failure, to be pasted."""

from typing import Any

from qkv.scripts.common.files import table
from qkv.scripts.conformance.subject import Subject

PROGRAMS = table(__file__)
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


def program(subject: Subject, name: str) -> str:
    """Return a program that makes a model and shows the claim of a check."""
    config = type(subject.config)
    inputs = ", ".join(f'"{key}": {made(value)}' for key, value in subject.batch().items())
    start = START.format(
        config_home=home(config), config=config.__name__, home=home(subject.cls), name=subject.cls.__name__,
        stream=subject.stream, fields=changed_fields(subject.config), inputs=f"{{{inputs}}}",
    )  # fmt: skip
    return start + PROGRAMS[name]


def made(value: Any) -> str:
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
