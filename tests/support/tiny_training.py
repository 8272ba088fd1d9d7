"""A training of milliseconds, with dropout and changes of its images: what may die, be damaged and go on in tests."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

import qkv
from qkv.scripts.data.corpus import DataSet
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.recipes.fields.keys import flat
from qkv.scripts.recipes.loading import changed
from qkv.scripts.tasks.task import Task, fingerprint_of
from qkv.scripts.training.early_stopping import EarlyStopping
from qkv.scripts.training.logger import MetricLogger
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.resume import CheckpointManager
from qkv.scripts.training.run import take_steps
from recipes import recipe_of

RECIPE = recipe_of(max_steps=10, batch_size=4, learning_rate=1e-2, warmup_steps=2, log_every=3, eval_every=5,
    save_every=2,
)  # fmt: skip
DATA = DataSet("t", "t", "t")
DROPOUT = {"embedding_dropout": 0.1, "residual_dropout": 0.2}


def collate(records: Sequence[Record], places: Sequence[int] | None) -> Batch:
    """Images with noise that their places decide."""
    batch = stack(records)
    if places is None:
        return batch
    noise = [torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(place)) for place in places]
    return {"pixel_values": batch["pixel_values"] + torch.stack(noise), "labels": batch["labels"]}


def task_of(
    train: object,
    splits: Mapping[str, object] = {},
    labels: Sequence[str] = (),
    *,
    data: DataSet = DATA,
    **functions: Any,
) -> Task:
    """A task of these functions."""
    methods = {name: staticmethod(function) for name, function in functions.items()}
    return type("TestTask", (Task,), methods)(data, {"train": train, **splits}, None, labels=list(labels))


def task() -> Task:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(14, 1, 4, 4, generator=generator)
    examples = Columns({"pixel_values": images, "labels": torch.arange(14) % 3})
    return task_of(examples, {"validation": examples, "test": examples}, ["a", "b", "c"], collate=collate)


def manager(folder: Path, network: torch.nn.Module | None = None, **fields: object) -> CheckpointManager:
    """A training at its start, as `train` has it when the run folder is open."""
    recipe = changed(RECIPE, **fields)
    set_seed(recipe.seed)
    model = network
    if model is None:
        small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
        config = qkv.QkvImageEncoderConfig(image_size=4, patch_size=2, num_channels=1, **small, **DROPOUT)
        model = qkv.QkvImageEncoderForImageClassification(config)
    data = task()
    loop = Loop(Accelerator(cpu=True), model, recipe, data)
    facts = {
        "recipe": flat(recipe),
        "config": json.loads(model.config.to_json_string()),
        "data": {"sha256": fingerprint_of(data)},
    }
    set_seed(recipe.seed, device_specific=True)
    folder.mkdir(exist_ok=True)
    logger = MetricLogger(folder, recipe, loop.accelerator)
    return CheckpointManager(loop, logger, EarlyStopping(recipe.output.watch, recipe.output.patience), facts)


def go(folder: Path, **fields: object) -> str:
    """Train to the end from wherever the folder is; what was said on resuming."""
    found = manager(folder, **fields)
    sentence = found.resume()
    take_steps(found)
    return sentence


def result(folder: Path, step: int = RECIPE.optimization.max_steps) -> dict[str, str]:
    """A digest of the metrics, and of the weights, moments and random numbers after a step."""
    last = folder / "checkpoints" / f"step-{step:06}"
    paths = [folder / "metrics.jsonl", *sorted(last.glob("*.safetensors"))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
