"""Does a published folder work for somebody without qkv? Load it in a process of its own and compare."""

import copy
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
from transformers import PreTrainedModel

CONSUMER = Path(__file__).with_name("clean_process_main.py")


@dataclass(frozen=True)
class Job:
    """A folder, or a repo of the Hub with a revision, the Auto class to load it with, and inputs for its model.

    `again` saves what was loaded and loads that; `pipeline` names a task, to be run on the file or text `example` with
    these `options`.
    """

    source: Path | str
    auto_class: str
    inputs: dict[str, Tensor]
    revision: str | None = None
    again: bool = False
    pipeline: str | None = None
    example: Path | str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def order(self, place: Path) -> dict[str, str]:
        """The job as `clean_process_main.py` reads it, with its files in the given folder."""
        place.mkdir()
        save_file({name: value.cpu().clone().contiguous() for name, value in self.inputs.items()}, place / "inputs")
        files: dict[str, Any] = {"inputs": place / "inputs", "outputs": place / "outputs"}
        files |= {"source": self.source} if isinstance(self.source, Path) else {}
        files |= {"copy": place / "copy"} if self.again else {}
        files |= {"example": self.example} if isinstance(self.example, Path) else {}
        files |= {"answer": place / "answer"} if self.example else {}
        order = {name: str(path.resolve()) for name, path in files.items()}
        words = {"source": self.source, "auto_class": self.auto_class, "revision": self.revision}
        words |= {"pipeline": self.pipeline, "example": self.example, "options": json.dumps(self.options)}
        return {**{name: str(word) for name, word in words.items() if word is not None}, **order}


@dataclass(frozen=True)
class Found:
    """What a job gave: the tensors of the model's output, and the pipeline's answer where one was asked for."""

    outputs: dict[str, Tensor]
    answer: Any = None


def reload(
    jobs: Sequence[Job],
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> list[Found]:
    """Do every job in one fresh process; RuntimeError with its last words if that fails.

    The process has qkv hidden, empty caches, no network, another working directory and nothing of our environment that
    concerns Python or Hugging Face. `home` is a place whose caches it finds and leaves for the next; `environment` is
    what it needs to reach a Hub; `python` may be that of another installation, with other versions.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        orders = [job.order(place / str(index)) for index, job in enumerate(jobs)]
        result = subprocess.run(
            [python, "-I", CONSUMER],
            input=json.dumps({"threads": torch.get_num_threads(), "jobs": orders}),
            env={**strange_environment(home or place), **(environment or {})},
            cwd=place,
            capture_output=True,
            text=True,
        )
        if result.returncode:
            raise RuntimeError(f"loading without qkv failed: {result.stderr.strip()[-2000:]}")
        return [collect(order) for order in orders]


def collect(order: dict[str, str]) -> Found:
    """What the process left for one job."""
    answer = json.loads(Path(order["answer"]).read_text(encoding="utf-8")) if "answer" in order else None
    return Found(load_file(order["outputs"]), answer)


def strange_environment(home: Path) -> dict[str, str]:
    """Our environment without anything that helps Python or Hugging Face find our files."""
    helpful = ("PYTHON", "HF_", "TRANSFORMERS_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(helpful)}
    return {**ours, "HF_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@torch.no_grad()
def outputs(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the model in memory makes of the inputs, on the CPU as the fresh process does: every tensor it puts out."""
    # Copied like the other: where a tensor lies in memory decides the last bits of matrix products.
    model = copy.deepcopy(model).cpu().eval()
    output = model(**{name: value.cpu() for name, value in inputs.items()})
    return {name: value for name, value in output.items() if isinstance(value, Tensor)}
