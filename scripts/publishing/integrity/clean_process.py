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

from qkv.scripts.publishing.integrity import inspector

PROGRAM = Path(inspector.__file__)


@dataclass(frozen=True)
class Job:
    """A folder or a repository of the Hub, the Auto class that loads it, and what to do with the model.

    `options` are those of `from_pretrained`; unless `remote` is false, the code of the source has to be used. `inputs`
    are for a forward pass. `again` saves the loaded model, and loads and runs the copy. `pipeline` names a task to be
    run on the text or file `example`. `fingerprints` reports every tensor.
    """

    source: Path | str
    auto_class: str
    inputs: Mapping[str, Tensor] | None = None
    revision: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    remote: bool = True
    again: bool = False
    fingerprints: bool = False
    pipeline: str | None = None
    example: Path | str | None = None
    pipeline_options: Mapping[str, Any] = field(default_factory=dict)

    def order(self, folder: Path) -> dict[str, Any]:
        """Return the job as `inspector.py` reads it, with its files in the given folder."""
        folder.mkdir()
        order: dict[str, Any] = {"source": absolute(self.source), "auto_class": self.auto_class, "remote": self.remote}
        order["options"] = {**self.options, "trust_remote_code": self.remote, "revision": self.revision}
        if self.inputs is not None:
            tensors = {name: value.cpu().clone().contiguous() for name, value in self.inputs.items()}
            order |= {"inputs": absolute(folder / "inputs"), "outputs": absolute(folder / "outputs")}
            save_file(tensors, order["inputs"])
        order |= {"copy": absolute(folder / "copy")} if self.again else {}
        order |= {"fingerprints": True} if self.fingerprints else {}
        if self.pipeline and self.example is not None:
            order |= {"pipeline": self.pipeline, "example": absolute(self.example)}
            order["pipeline_options"] = dict(self.pipeline_options)
        return order


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
) -> list[Loaded]:
    """Do every job in one new process; RuntimeError with its last line if that fails.

    The process cannot import qkv, has empty caches, no network, another working directory and none of the environment
    variables of Python and Hugging Face. `home` is a folder whose caches are used and kept; `environment` is added;
    `python` may be an interpreter with other versions of the libraries.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        orders = [job.order(place / str(index)) for index, job in enumerate(jobs)]
        order = {"threads": torch.get_num_threads(), "reports": absolute(place / "reports"), "jobs": orders}
        result = subprocess.run(
            [python, "-I", PROGRAM],
            input=json.dumps(order),
            env={**clean_environment(home or place), **(environment or {})},
            cwd=place,
            capture_output=True,
            text=True,
        )
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["the process ended without a message"])[-1]
            raise RuntimeError(f"loading without qkv failed: {reason}")
        reports = json.loads((place / "reports").read_text(encoding="utf-8"))
        return [
            Loaded(report, load_file(order["outputs"]) if "outputs" in order else {})
            for report, order in zip(reports, orders, strict=True)
        ]


def absolute(source: Path | str) -> str:
    """Return the full path of a file or folder, for the process has another working directory; a text as it is."""
    return str(source.resolve()) if isinstance(source, Path) else source


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment variables without those that help Python or Hugging Face find local files."""
    helpful = ("PYTHON", "HF_", "TRANSFORMERS_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(helpful)}
    return {**ours, "HF_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
