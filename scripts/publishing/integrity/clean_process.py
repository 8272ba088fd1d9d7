"""Load published models in a process of its own that has no qkv, and collect what it reports."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import qkv
from qkv.scripts.common import inspector
from qkv.scripts.common.inspector import Job

PROGRAM = Path(inspector.__file__)


@dataclass(frozen=True)
class Loaded:
    """The report on a loaded model, the tensors of its output, and the pipeline's answer."""

    report: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)

    @property
    def answer(self) -> Any:
        """Return the pipeline's result, None where none was asked for."""
        return self.report.get("answer")


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
    """Return what a job left in its folder."""
    report, outputs = json.loads((folder / "report.json").read_text(encoding="utf-8")), folder / "outputs"
    return Loaded(report, load_file(outputs) if outputs.is_file() else {})


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment variables without those that help Python or Hugging Face find local files."""
    helpful = ("PYTHON", "HF_", "TRANSFORMERS_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(helpful)}
    return {**ours, "HF_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
