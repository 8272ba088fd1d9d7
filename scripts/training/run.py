"""Train a recipe: load its data, build its model, take the steps, evaluate and save."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import set_seed
from transformers import PreTrainedConfig, PreTrainedModel

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.common.environment import public_command
from qkv.scripts.common.files import replacing
from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.tables import print_table
from qkv.scripts.common.words import check_known, did_you_mean
from qkv.scripts.data.splits.seen import write_seen
from qkv.scripts.data.tokenization import is_much, truncated_sentence
from qkv.scripts.recipes.fields.keys import merged
from qkv.scripts.recipes.loading import STORY
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.class_scores import class_scores
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.accelerator import (
    build_accelerator,
    full_model,
    keep_freed_memory,
    make_model,
    seed_ranks,
    with_device_defaults,
)
from qkv.scripts.training.distributed import init_elastic_process_group, model_class, run_on_main
from qkv.scripts.training.early_stopping import EarlyStopping, check_metric
from qkv.scripts.training.expert_loads import LOADS, draw_loads, loads_of_test_split
from qkv.scripts.training.logger import MetricLogger, check_losses, draw_curve
from qkv.scripts.training.loop import Loop, out_of_memory_explained
from qkv.scripts.training.pretrained import load_pretrained, pretrained_config
from qkv.scripts.training.record import Clock, describe, read_lines, read_metrics, write_record
from qkv.scripts.training.resume import CheckpointManager, finished_record, locked_folder, should_save
from qkv.scripts.training.schedule import with_max_steps
from qkv.scripts.training.signals import SignalHandler

CURVE = "curve.png"
FEW_ROWS = 30  # by fewer the best step is chosen at random
UNBALANCED = 3  # times the rarest class that the most frequent has
# The architectures that can be trained; the dual encoder has no head.
TRAINED = [name for name in modeling.__all__ if "For" in name or name in ("QkvDualEncoderModel", "QkvFoldingModel")]


@dataclass
class Run:
    """A training: its folder, model, data and record, and the clock that started with it."""

    folder: Path
    model: PreTrainedModel
    task: Task
    record: dict[str, Any]
    clock: Clock
    is_main: bool

    def save(self) -> None:
        """Write the record."""
        self.record["time"] |= self.clock.read()
        write_record(self.folder, self.record)

    @phase("writing the model")
    def finish(self) -> None:
        """Write the model, its processor and products, the curve and, last, the record."""
        if self.task.generation:
            # Or a pipeline takes them for defaults of the config, and uses others.
            self.model.generation_config.update(**self.task.generation, _from_model_config=False)
        with replacing(self.folder) as folder:
            self.model.save_pretrained(folder)
            self.task.processor.save_pretrained(folder)
            draw_curve(read_metrics(self.folder), folder / CURVE, self.record["steps"]["kept"])
            products = self.task.products(self.model, folder)
            if loads := loads_of_test_split(self.model, self.task, self.record["recipe"]["batch_size"]):
                self.record["experts"] = loads
                draw_loads(loads, folder / LOADS)
                products |= {LOADS: "Share of the test split's choices that falls on each expert"}
        pictures = {CURVE: "Loss and metrics by optimizer step", **products}
        self.record["pictures"] = {name: text for name, text in pictures.items() if name.endswith(".png")}
        self.record["products"] = list(products)
        self.save()

    def load(self, record: dict[str, Any]) -> None:
        """Load a run that was finished earlier, and update the texts of its card."""
        steps = record["steps"]["taken"]
        more = f"max_steps={2 * steps} would go on from there"
        say(f"{self.folder} is finished, all {steps} steps; nothing was trained; {more}")
        self.model = model_class(self.model).from_pretrained(self.folder).eval()
        texts = {name: self.record["recipe"][name] for name in (*STORY, "card")}
        self.record = record | {"recipe": record["recipe"] | texts}
        if self.is_main and self.record != record:
            write_record(self.folder, self.record)
        self.clock.add(record["time"])


def build(recipe: Recipe, task: Task) -> PreTrainedModel:
    """Build the recipe's model at its start; ValueError for an unknown architecture or config field."""
    architecture = architecture_of(recipe)
    known = architecture.config_class.known_fields()
    fields = {name: value for name, value in task.config.items() if name in known}
    if task.labels:
        id2label = dict(enumerate(task.labels))
        label2id = {label: index for index, label in id2label.items()}
        fields = {"num_labels": len(task.labels), "id2label": id2label, "label2id": label2id} | fields
    if recipe.model.init is not None:
        return load_pretrained(recipe, architecture, pretrained_config(recipe, architecture, fields))
    config = config_factory(recipe, architecture)(**merged(fields, recipe.model.config))
    if not isinstance(config, architecture.config_class):
        kind, wanted = type(config).__name__, architecture.config_class.__name__
        raise ValueError(
            f"preset={recipe.model.preset!r} is a {kind}, and {recipe.model.architecture} takes a {wanted}"
        )
    model: PreTrainedModel = architecture(config)
    return model


def train(
    recipe: Recipe,
    command: str,
    clock: Clock | None = None,
    complete: Callable[[Run], None] = lambda run: None,
    build: Callable[[Recipe, Task], PreTrainedModel] = build,
) -> Run:
    """Train, evaluate and save a recipe; the record names the `command` that was typed.

    The `clock` counts from the start of the process by default. `complete` is called on the main process with the
    finished run, while its folder is locked. ValueError and FileExistsError come before anything is written.
    """
    clock = clock or Clock(cpu=0.0)
    if recipe.compute.threads:
        torch.set_num_threads(recipe.compute.threads)
    init_elastic_process_group()
    recipe = with_device_defaults(recipe)
    accelerator = build_accelerator(recipe)
    keep_freed_memory(accelerator.device)
    task = load_task(recipe)
    recipe = with_max_steps(recipe, task.train)
    if (lines := read_lines(task, recipe)) and accelerator.is_main_process:
        print_table(f"read of {task.data.name}", lines)
    if told := truncated_sentence(task.truncated):
        say(f"{'warning: ' if is_much(task.truncated) else ''}{told[:1].lower()}{told[1:-1]}")
    check_metric(recipe.output, task.splits)
    set_seed(recipe.seed)
    with phase("building the model"):
        model = make_model(accelerator, recipe, lambda: task.before_training(build(recipe, task)))
        loop = Loop(accelerator, model, recipe, task)
    record = describe(recipe, task, model, accelerator) | {"command": public_command(command)}
    with locked_folder(recipe, accelerator, record) as folder:
        run = Run(folder, model, task, record, clock, accelerator.is_main_process)
        earlier = run_on_main(accelerator, lambda: finished_record(folder, record))
        if earlier is not None:
            run.load(earlier)
        else:
            fit(loop, run)
        if run.is_main:
            complete(run)
    return run


def load_task(recipe: Recipe) -> Task:
    """Load the recipe's data; with workers one process of each machine writes the cache for all."""
    cached = recipe.data.workers and not recipe.data.streaming
    first = PartialState().local_main_process_first() if cached else nullcontext()
    with phase(f"reading the data of {recipe.name}"), first:
        return registry.load(recipe)


def architecture_of(recipe: Recipe) -> Any:
    """Return the recipe's model class; ValueError for an unknown one, or an unknown field of its config."""
    if recipe.model.architecture not in TRAINED:
        hint = did_you_mean(recipe.model.architecture, TRAINED, "architectures")
        raise ValueError(f"there is no architecture {recipe.model.architecture!r}; {hint}")
    architecture: Any = getattr(modeling, recipe.model.architecture)
    known = architecture.config_class.known_fields()
    for key in recipe.model.config:
        check_known(f"model.{key}", [f"model.{name}" for name in sorted(known)])
    return architecture


def config_factory(recipe: Recipe, architecture: Any) -> Callable[..., PreTrainedConfig]:
    """Return the recipe's preset, or the config class, to be called with fields."""
    preset = recipe.model.preset
    if preset is None:
        return architecture.config_class
    if preset not in presets.names():
        raise ValueError(f"there is no preset {preset!r}; {did_you_mean(preset, presets.names(), 'presets')}")
    return getattr(presets, preset)


def fit(loop: Loop, run: Run) -> None:
    """Take the remaining steps, evaluate, and write the model and the record on the main process."""
    loop.task.data.invalid_records.open(run.folder, is_main=run.is_main)
    seed_ranks(loop.accelerator, loop.recipe.seed)
    logger = MetricLogger(run.folder, loop.recipe, loop.accelerator)
    early_stopping = EarlyStopping(loop.recipe.output.watch, loop.recipe.output.patience)
    manager = CheckpointManager(loop, logger, early_stopping, run.record)
    with phase(f"looking for checkpoints in {run.folder}"):
        if sentence := manager.resume():
            say(sentence)
    run.clock.add(manager.earlier)
    with out_of_memory_explained(loop):
        take_steps(manager)
    manager.load_kept()
    # Once, with the final weights, so that the test split decides nothing.
    answers: list[Answer] = []
    with phase("evaluating the test split"):
        tested = {name: loop.evaluate(split, answers) for name, split in loop.task.splits.items() if name == "test"}
    logger.log_evaluation(loop.done, tested, early_stopping.step)
    check_losses({**early_stopping.results, **tested})
    if early_stopping.sentence:
        say(f"the weights that are kept are those of the {early_stopping.sentence}")
        for advice in advice_on_choice(loop.task.sizes(), run.record["data"], loop.recipe.output.watch or ""):
            say(advice)
    run.model = full_model(loop.accelerator, loop.model).eval()
    run.task.after_training(run.model)
    run.record |= results(manager, tested, answers)
    loop.close()
    if run.is_main:
        write_seen(run.folder, run.task.data.report, loop.recipe.model.init)
        run.finish()


def advice_on_choice(sizes: Mapping[str, int | None], data: Mapping[str, Any], watch: str) -> Iterator[str]:
    """Yield a sentence where few rows chose the step that is kept, and where accuracy did among unbalanced classes."""
    split, _, metric = watch.partition(" ")
    if (rows := sizes[split]) and rows < FEW_ROWS:
        yield f"warning: {rows} rows of the {split} split chose this step; a larger holdout= chooses better"
    counts = sorted(data.get("classes", {}).get("train", {}).values())
    if metric == "accuracy" and counts and counts[-1] > UNBALANCED * counts[0]:
        yield (
            f"classes have {counts[0]} to {counts[-1]} rows, and accuracy hardly sees the smallest; "
            f"watch='{split} f1_macro' keeps the step of the best mean over classes"
        )


def results(
    manager: CheckpointManager, tested: dict[str, dict[str, float]], answers: Sequence[Answer]
) -> dict[str, Any]:
    """Return the metrics, steps and times of a training for its record, and for own data the scores of each class."""
    stopping, task = manager.early_stopping, manager.loop.task
    classes = class_scores(answers, task.labels, task.metrics) if task.data.report else {}
    return {
        **({"by_class": {"test": classes}} if classes else {}),
        "metrics": {**stopping.results, **tested},
        "steps": {"taken": manager.loop.done, "kept": stopping.step, "averaged": manager.average.steps},
        "best": {"metric": stopping.metric, "value": stopping.best} if stopping.metric else None,
        "bad_records": task.data.invalid_records.summary(),
        "resumed": list(manager.resumed),
        "time": {f"training_{name}": seconds for name, seconds in manager.clock.read().items()},
    }


def take_steps(manager: CheckpointManager) -> None:
    """Take the remaining steps, with evaluations and checkpoints; Interrupted after a signal."""
    loop, recipe = manager.loop, manager.loop.recipe
    validation = {name: split for name, split in loop.task.splits.items() if name != "test"}
    is_main = loop.accelerator.is_main_process
    with closing(manager.logger.start(loop.done)), SignalHandler(speaks=is_main) as handler:
        loop.stop_requested = lambda: handler.number is not None
        loop.save_requested = manager.save_requested
        for step in () if manager.early_stopping.should_stop else loop.steps():
            manager.logger.log_step(step)
            last, best = step.number == recipe.optimization.max_steps, False
            if last or step.number % recipe.output.eval_every == 0:
                best = manager.update({name: loop.evaluate(split) for name, split in validation.items()})
            if best or should_save(step, recipe):
                manager.save()
            if step.stop and not last:
                manager.interrupt(handler)
            if manager.early_stopping.should_stop:
                break
