"""By which ways does a folder become a model? Each is gone, and what came out is told for comparison.

Ways here: the class itself, its Auto class, and both in a process that has no qkv.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import qkv
from qkv.modeling.conversion.files import CONFIG, named, quiet, read_json
from qkv.scripts.publishing.integrity import inspector
from qkv.scripts.publishing.integrity.clean_process import strange_environment

INSPECTOR = Path(inspector.__file__)
Report = dict[str, Any]
# Whether loads are our own, which are compared here and need no second check (QKV_VERIFY).
OWN_LOAD: ContextVar[bool] = ContextVar("OWN_LOAD", default=False)


@dataclass(frozen=True)
class Loaded:
    """What a load gave: the report of `inspector.load`, and the answers of a forward pass where one was made."""

    report: Report
    answers: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def own_load() -> Iterator[None]:
    """A block in which loads are quiet and not checked once more."""
    token = OWN_LOAD.set(True)
    try:
        with quiet():
            yield
    finally:
        OWN_LOAD.reset(token)


def installed_class(folder: Path) -> Any:
    """The class that a folder's config names, of qkv or of transformers; None where neither has it."""
    name = named(folder)[1]
    return getattr(qkv, name, None) or getattr(transformers, name, None)


def auto_class(folder: Path) -> str | None:
    """The Auto class that gives the class a folder's config names; None where there is none."""
    model_type, name = named(folder)
    own = [key for key, value in read_json(folder / CONFIG).get("auto_map", {}).items() if value.endswith(f".{name}")]
    if own:  # that of its task, where it has one
        return str(min(own, key=lambda auto: auto == "AutoModel"))
    if model_type not in transformers.CONFIG_MAPPING:
        return None
    config_class = transformers.CONFIG_MAPPING[model_type]
    for auto in sorted(filter(re.compile("AutoModel").match, dir(transformers))):
        found = getattr(transformers, auto)._model_mapping.get(config_class, ())
        if name in (each.__name__ for each in (found if isinstance(found, tuple) else (found,))):
            return auto
    return None


def load(loader: Any, folder: Path, **options: Any) -> tuple[Any, Report]:
    """The model of a folder, loaded in this process, and the report on it."""
    with own_load():
        return inspector.load(loader, str(folder), options)


def loaded(loader: Any, folder: Path, inputs: dict[str, Tensor] | None = None, **options: Any) -> Loaded:
    """What loading in this process gives; the model is let go."""
    model, report = load(loader, folder, **options)
    return Loaded(report, {} if inputs is None else inspector.answered(model, inputs))


def loaded_elsewhere(
    folder: Path, auto: str, inputs: dict[str, Tensor] | None, options: list[dict[str, Any]]
) -> list[Loaded]:
    """What the Auto class gives in a fresh process without qkv, once for each set of options.

    RuntimeError with the last words of the process if that fails.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        order: dict[str, Any] = {"threads": torch.get_num_threads(), "report": str(place / "report"), "inputs": None}
        if inputs is not None:
            save_file({key: value.clone().contiguous() for key, value in inputs.items()}, place / "inputs")
            order["inputs"] = str(place / "inputs")
        outputs = [place / f"outputs{index}" for index in range(len(options))]
        order["jobs"] = [
            {"folder": str(folder.resolve()), "auto_class": auto, "options": each, "outputs": str(path)}
            for each, path in zip(options, outputs, strict=True)
        ]
        command, environment = [sys.executable, "-I", str(INSPECTOR)], strange_environment(place)
        text = json.dumps(order)
        result = subprocess.run(command, input=text, env=environment, cwd=place, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError((result.stderr.strip().splitlines() or ["the process ended without a word"])[-1])
        reports = json.loads((place / "report").read_text(encoding="utf-8"))
        answers = [load_file(path) if path.is_file() else {} for path in outputs]
    return [Loaded(report, answer) for report, answer in zip(reports, answers, strict=True)]
