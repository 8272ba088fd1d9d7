"""How does a recipe become a trained model in a run folder?"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from transformers import PreTrainedConfig, PreTrainedModel

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.publishing.card.card import write_card
from qkv.scripts.recipes.schema import Recipe, meant, refuse_unknown
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task
from qkv.scripts.training import accelerator as engine
from qkv.scripts.training import record
from qkv.scripts.training.distributed import agreed, in_turn, join
from qkv.scripts.training.early_stopping import Watch, refuse_unwatched
from qkv.scripts.training.energy import Energy
from qkv.scripts.training.initialization import kind_of, start
from qkv.scripts.training.logger import Journal
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.plots import draw_curve
from qkv.scripts.training.record import Clock
from qkv.scripts.training.resume import Keeper, finished, open_folder
from qkv.scripts.training.signals import Interrupt
from qkv.scripts.training.state import put

# What learns without a head.
HEADLESS = ("QkvDualEncoderModel",)
CURVE = {"curve.png": "Loss and metrics by optimizer step"}


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

    def finish(self) -> None:
        """Write the model with its processor, what it makes, the curve, the record and the card."""
        if self.task.generation:
            # Else a pipeline would think nobody had chosen any of it, and take its own.
            self.model.generation_config.update(**self.task.generation, _from_model_config=False)
        self.model.save_pretrained(self.folder / "model")
        self.task.processor.save_pretrained(self.folder / "model")
        draw_curve(record.read_log(self.folder), self.folder / "curve.png")
        products = self.task.products(self.model, self.folder)
        self.record["pictures"] = CURVE | {name: said for name, said in products.items() if name.endswith(".png")}
        self.record["products"] = list(products)
        self.save()

    def again(self, earlier: dict[str, Any], kind: Any) -> "Run":
        """This run as it was finished earlier with a model of that kind, which that record tells."""
        steps = earlier["steps"]["taken"]
        if self.is_main:
            print(f"qkv: {self.folder} is finished, all {steps} steps; nothing was trained", file=sys.stderr)
        self.model = kind.from_pretrained(self.folder / "model").eval()
        self.record = earlier
        self.clock.forward(earlier["time"])
        return self


def train(recipe: Recipe, command: str, clock: Clock | None = None) -> Run:
    """Train, evaluate and save as the recipe says; `command` is what the record will say was typed.

    The `clock` counts from the start of the process unless another is given, as where one process trains many times.
    ValueError and FileExistsError come before anything is written.
    """
    clock = clock or Clock(cpu=0.0)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    join()
    accelerator = engine.accelerate(recipe)
    task = load(recipe)
    refuse_unwatched(recipe.watch, task.splits)
    set_seed(recipe.seed)
    model = engine.make(accelerator, recipe, lambda: build(recipe, task))
    loop = Loop.of(accelerator, model, recipe, task)
    facts = record.describe(recipe, task, model, accelerator) | {"command": record.typed(command)}
    folder = open_folder(recipe, accelerator)
    run = Run(folder, model, task, facts, clock, accelerator.is_main_process)
    earlier = agreed(accelerator, lambda: finished(folder, facts))
    if earlier is not None:
        return run.again(earlier, kind_of(recipe, model))
    accelerator.project_configuration.logging_dir = str(folder)
    accelerator.init_trackers(recipe.name)
    engine.draw_apart(accelerator, recipe.seed)
    fit(loop, run)
    accelerator.end_training()
    if run.is_main:
        run.finish()
    return run


def load(recipe: Recipe) -> Task:
    """The recipe's data; what workers make and keep on disk, those of one process of a machine make for all."""
    kept = recipe.workers and not recipe.streaming
    return in_turn(lambda: data.load(recipe)) if kept else data.load(recipe)


def build(recipe: Recipe, task: Task) -> PreTrainedModel:
    """The recipe's model as training starts from it; ValueError for an unknown architecture or config field."""
    architectures = [name for name in modeling.__all__ if "For" in name or name in HEADLESS]
    if recipe.architecture not in architectures:
        hint = meant(recipe.architecture, architectures, "architectures")
        raise ValueError(f"there is no architecture {recipe.architecture!r}; {hint}")
    architecture: Any = getattr(modeling, recipe.architecture)
    known = architecture.config_class.known_fields()
    for key in recipe.model:
        refuse_unknown(f"model.{key}", [f"model.{name}" for name in sorted(known)])
    # A recurrent network has no number of positions, for one.
    follows = {name: value for name, value in task.config.items() if name in known}
    id2label = dict(enumerate(task.labels))
    label2id = {label: index for index, label in id2label.items()}
    labels = {"num_labels": len(task.labels), "id2label": id2label, "label2id": label2id} if task.labels else {}
    config = starting_point(recipe, architecture)(**merged({**labels, **follows}, recipe.model))
    if not isinstance(config, architecture.config_class):
        kind, wanted = type(config).__name__, architecture.config_class.__name__
        raise ValueError(f"preset={recipe.preset!r} is a {kind}, and {recipe.architecture} takes a {wanted}")
    return start(recipe, architecture(config))


def merged(fields: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Fields and more of them, those of a part as well."""
    parts = {name: merged(fields[name], value) for name, value in more.items() if isinstance(fields.get(name), dict)}
    return {**fields, **more, **parts}


def starting_point(recipe: Recipe, architecture: Any) -> Callable[..., PreTrainedConfig]:
    """What makes a config of the recipe's fields: its preset, or the config's own defaults."""
    if recipe.preset is None:
        return architecture.config_class
    if recipe.preset not in presets.names():
        raise ValueError(f"there is no preset {recipe.preset!r}; {meant(recipe.preset, presets.names(), 'presets')}")
    return getattr(presets, recipe.preset)


def fit(loop: Loop, run: Run) -> None:
    """Take the steps that are left, and note in the run's record what came of them."""
    run.task.complaints.open(run.folder, is_main=run.is_main)
    journal = Journal(run.folder, loop.recipe, loop.accelerator)
    watch = Watch(loop.recipe.watch, loop.recipe.patience)
    keeper = Keeper.of(loop, journal, watch, run.record)
    journal.say(keeper.resume())
    run.clock.forward(keeper.earlier)
    energy = Energy.of(loop.accelerator)
    step_through(loop, journal, keeper, energy)
    loop.settle()
    if watch.step != loop.done:
        put(loop, keeper.tensors(watch.step))
    # The test split is looked at once, by the weights that are kept: who could watch it would choose by it.
    tested = {name: loop.evaluate(split) for name, split in loop.task.splits.items() if name == "test"}
    journal.results(loop.done, tested)
    run.model = engine.whole(loop.accelerator, loop.model, kind_of(loop.recipe, run.model)).eval()
    run.record["metrics"] = {**watch.results, **tested}
    run.record["steps"] = {"taken": loop.done, "kept": watch.step}
    run.record["bad_records"] = run.task.complaints.summary()
    # The processors' counters know nothing of what was before.
    run.record["energy"] = None if keeper.resumed else energy.read()
    run.record["resumed"] = list(keeper.resumed)
    run.record["time"] = {f"training_{name}": seconds for name, seconds in keeper.clock.read().items()}


def step_through(loop: Loop, journal: Journal, keeper: Keeper, energy: Energy) -> None:
    """Take the steps that are left, and evaluate and save on the way; Interrupted when a signal came."""
    recipe, watch = loop.recipe, keeper.watch
    watched = {name: split for name, split in loop.task.splits.items() if name != "test"}
    with journal.progress, keeper.checkpoints.writer, Interrupt() as interrupt:
        loop.asked = lambda: interrupt.number is not None or keeper.checkpoints.failed()
        for step in () if watch.exhausted else loop.steps():
            journal.step(step)
            energy.note()
            last, best = step.number == recipe.max_steps, False
            if last or step.number % recipe.eval_every == 0:
                best = keeper.note({name: loop.evaluate(split) for name, split in watched.items()})
            if last or best or step.stop or (recipe.save_every and step.number % recipe.save_every == 0):
                keeper.save()
            if step.stop and not last:
                keeper.leave(interrupt)
            if watch.exhausted:
                break
        keeper.wait()
