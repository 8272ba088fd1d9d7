"""Name and read the files of a run folder, known without importing PyTorch."""

import json
from pathlib import Path
from typing import Any

METRICS, CURVE, CHECKPOINTS = "metrics.jsonl", "curve.png", "checkpoints"
# The state of a checkpoint, and the lock of a process that writes to a folder of checkpoints or a sweep.
STATE, LOCK = "state.json", ".lock"
# Fields that may change when a training is resumed: its steps stay the same, only split or logged in another way.
FREE = {
    "accumulate", "card", "eval_every", "gradient_checkpointing", "keep", "limits", "log_every", "out",
    "patience", "prompt", "resume", "save_every", "save_minutes", "strategy", "tensor_parallel", "threads", "title",
    "tracker", "workers",
}  # fmt: skip


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the logged metrics of a run, oldest first."""
    return [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]
