"""Load a saved model as its users do: quietly in this process, or in a separate process without qkv."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import qkv
from qkv.modeling.conversion.files import named, quiet
from qkv.scripts.common import inspector
from qkv.scripts.common.heads import HUB_TASKS
from qkv.scripts.common.inspector import Job, load_reported

PROGRAM = Path(inspector.__file__)
# Whether a load is part of writing or verifying a manifest, which QKV_VERIFY does not compare with one.
UNCHECKED: ContextVar[bool] = ContextVar("UNCHECKED", default=False)


def load_quietly(loader: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Load the model of a folder in this process, with the report on it."""
    token = UNCHECKED.set(True)
    try:
        with quiet():
            return load_reported(loader, str(folder), {})
    finally:
        UNCHECKED.reset(token)


def installed_class(folder: Path) -> Any:
    """Return the class of qkv or transformers that a folder's config names; None where neither has it."""
    name = named(folder)[1]
    return getattr(qkv, name, None) or getattr(transformers, name, None)


def auto_class(config: dict[str, Any], architecture: str) -> str | None:
    """Return the Auto class that gives an architecture with this config: of several, the first in `HUB_TASKS`."""
    own = [auto for auto, target in config.get("auto_map", {}).items() if target.endswith(f".{architecture}")]
    if own:
        return str(min(own, key=lambda auto: [*HUB_TASKS].index(auto) if auto in HUB_TASKS else len(HUB_TASKS)))
    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        return None
    config_class = transformers.CONFIG_MAPPING[config["model_type"]]
    for auto in dict.fromkeys((*HUB_TASKS, *filter(re.compile("AutoModel").match, dir(transformers)))):
        classes = getattr(transformers, auto)._model_mapping.get(config_class, ())
        if architecture in (each.__name__ for each in (classes if isinstance(classes, tuple) else (classes,))):
            return auto
    return None


@dataclass(frozen=True)
class Loaded:
    """The report on a loaded model, and the tensors of its output."""

    report: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)


def load_in_clean_process(
    jobs: Sequence[Job],
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    *,
    installed: bool = False,
) -> list[Loaded]:
    """Do every job in one new process; RuntimeError with its last line if that fails.

    The process has empty caches, no network, another working directory and none of the environment variables of Python
    and Hugging Face; unless `installed`, it cannot import qkv. `home` is a folder whose caches are used and kept;
    `environment` is added; `python` may be an interpreter with other versions of the libraries.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folders = [write_job(job, place / str(index)) for index, job in enumerate(jobs)]
        package = (str(qkv.__file__), qkv.__path__[0]) if installed else ("", "")
        result = subprocess.run(
            [python, "-I", PROGRAM, str(torch.get_num_threads()), *package, *folders],
            env={**clean_environment(home or place), **(environment or {})},
            cwd=place,
            capture_output=True,
            text=True,
        )
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["the process ended without a message"])[-1]
            raise RuntimeError(f"loading {'with' if installed else 'without'} qkv failed: {reason}")
        return [read_loaded(folder) for folder in folders]


def write_job(job: Job, folder: Path) -> Path:
    """Write a job as `inspector.py` reads it, with full paths, for the process has another working directory."""
    folder.mkdir()
    if job.inputs is not None:
        tensors = {name: value.cpu().clone().contiguous() for name, value in job.inputs.items()}
        save_file(tensors, folder / "inputs")
    text = json.dumps({**vars(job), "inputs": None}, default=lambda path: str(path.resolve()))
    (folder / "job.json").write_text(text, encoding="utf-8")
    return folder


def read_loaded(folder: Path) -> Loaded:
    """Read the report and outputs of a job."""
    report, outputs = json.loads((folder / "report.json").read_text(encoding="utf-8")), folder / "outputs"
    return Loaded(report, load_file(outputs) if outputs.is_file() else {})


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment without the variables by which Python or Hugging Face find local files."""
    helpful = ("PYTHON", "HF_", "TRANSFORMERS_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(helpful)}
    return {**ours, "HF_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
