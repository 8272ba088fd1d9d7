"""How does a recipe become a trained model in a run folder?"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import set_seed
from transformers import PreTrainedConfig, PreTrainedModel

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.publishing.card import write_card
from qkv.scripts.training import data, record
from qkv.scripts.training.energy import Energy
from qkv.scripts.training.journal import Journal
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.picture import draw_curve
from qkv.scripts.training.recipe import Recipe, meant, refuse_unknown
from qkv.scripts.training.record import Clock
from qkv.scripts.training.start import start
from qkv.scripts.training.task import Task

CURVE = {"curve.png": "Loss and metrics by optimizer step"}
PRECISIONS = {"fp32": "no", "bf16": "bf16"}


@dataclass
class Run:
    """A finished training: its folder, model and data, its record, and the clock that started with it."""

    folder: Path
    model: PreTrainedModel
    task: Task
    record: dict[str, Any]
    clock: Clock
    is_main: bool

    def save(self) -> None:
        """Write the record as it is now, and the card that follows from it."""
        self.record["time"] |= self.clock.read()
        record.write(self.folder, self.record)
        write_card(self.folder / "record.json", self.folder / "card.md")


def train(recipe: Recipe, command: str) -> Run:
    """Train, evaluate and save as the recipe says; `command` is what the record will say was typed.

    ValueError and FileExistsError come before anything is written.
    """
    clock = Clock(cpu=0.0)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    accelerator = make_accelerator(recipe)
    task = data.load(recipe)
    set_seed(recipe.seed)
    model = build(recipe, task)
    loop = Loop.of(accelerator, model, recipe, task)
    folder = record.open_folder(recipe, accelerator)
    accelerator.project_configuration.logging_dir = str(folder)
    accelerator.init_trackers(recipe.name)
    task.complaints.open(folder, is_main=accelerator.is_main_process)
    facts = record.describe(recipe, task, model, accelerator) | {"command": command}
    # Every process began with the same model; from here each draws dropout and augmentation of its own.
    set_seed(recipe.seed, device_specific=True)
    training, energy = Clock(), Energy.of(accelerator)
    facts["metrics"] = fit(loop, folder, energy)
    facts |= {"energy": energy.read(), "bad_records": task.complaints.summary()}
    facts["time"] = {f"training_{name}": seconds for name, seconds in training.read().items()}
    trained = accelerator.unwrap_model(loop.model, keep_torch_compile=False).eval()
    if loop.average:
        loop.average.put(list(loop.average.weights.values()))
    run = Run(folder, trained, task, facts, clock, accelerator.is_main_process)
    accelerator.end_training()
    if run.is_main:
        run.model.save_pretrained(folder / "model")
        task.processor.save_pretrained(folder / "model")
        draw_curve(record.read_log(folder), folder / "curve.png")
        facts["pictures"] = dict(CURVE)
        run.save()
    return run


def make_accelerator(recipe: Recipe) -> Accelerator:
    """What knows devices and processes; ValueError for a tracker that is not installed."""
    trackers = [str(getattr(tracker, "value", tracker)) for tracker in get_available_trackers()]
    if recipe.tracker and recipe.tracker not in trackers:
        raise ValueError(f"tracker={recipe.tracker!r} is not installed; here are {', '.join(trackers) or 'none'}")
    return Accelerator(
        # Told that there is only the CPU, or several processes would each train alone.
        cpu=not torch.accelerator.is_available(),
        mixed_precision=PRECISIONS[recipe.precision],
        dynamo_backend="inductor" if recipe.compile else "no",
        log_with=recipe.tracker,
        # Trackers write to the run folder, which is opened later.
        project_dir="runs",
    )


def build(recipe: Recipe, task: Task) -> PreTrainedModel:
    """The recipe's model as training starts from it; ValueError for an unknown architecture or config field."""
    architectures = [name for name in modeling.__all__ if "For" in name]
    if recipe.architecture not in architectures:
        hint = meant(recipe.architecture, architectures, "architectures")
        raise ValueError(f"there is no architecture {recipe.architecture!r}; {hint}")
    architecture: Any = getattr(modeling, recipe.architecture)
    known = [f"model.{name}" for name in sorted(architecture.config_class.known_fields())]
    for key in recipe.model:
        refuse_unknown(f"model.{key}", known)
    id2label = dict(enumerate(task.labels))
    label2id = {label: index for index, label in id2label.items()}
    labels = {"num_labels": len(task.labels), "id2label": id2label, "label2id": label2id} if task.labels else {}
    config = starting_point(recipe, architecture)(**{**labels, **task.config, **recipe.model})
    if not isinstance(config, architecture.config_class):
        kind, wanted = type(config).__name__, architecture.config_class.__name__
        raise ValueError(f"preset={recipe.preset!r} is a {kind}, and {recipe.architecture} takes a {wanted}")
    return start(recipe, architecture(config))


def starting_point(recipe: Recipe, architecture: Any) -> Callable[..., PreTrainedConfig]:
    """What makes a config of the recipe's fields: its preset, or the config's own defaults."""
    if recipe.preset is None:
        return architecture.config_class
    if recipe.preset not in presets.names():
        raise ValueError(f"there is no preset {recipe.preset!r}; {meant(recipe.preset, presets.names(), 'presets')}")
    return getattr(presets, recipe.preset)


def fit(loop: Loop, folder: Path, energy: Energy) -> dict[str, dict[str, float]]:
    """Take every step, and return the last evaluation of each split: that of the weights that are kept.

    The test split is looked at once, after the last step: who could watch it would choose by it.
    """
    recipe = loop.recipe
    journal = Journal(folder, recipe, loop.accelerator)
    results: dict[str, dict[str, float]] = {}
    with journal.progress:
        for step in loop.steps():
            journal.step(step)
            energy.note()
            last = step.number == recipe.max_steps
            watched = {name: split for name, split in loop.task.splits.items() if last or name != "test"}
            if watched and (last or step.number % recipe.eval_every == 0):
                results = {name: loop.evaluate(split) for name, split in watched.items()}
                journal.results(step.number, results)
    return results
