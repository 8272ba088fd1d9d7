"""Save the state of a training, and resume from the newest checkpoint when the same command is given again."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import IO, Any, NoReturn

from accelerate import Accelerator
from safetensors.torch import load_file

from qkv.scripts.common.environment import versions
from qkv.scripts.common.files import RECORD, lock, write_atomically
from qkv.scripts.common.phases import say
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.averaging import MEAN, WeightAverage
from qkv.scripts.training.checkpoint import Checkpoints, Tensors
from qkv.scripts.training.distributed import run_on_main, value_of_first_attempt
from qkv.scripts.training.early_stopping import EarlyStopping
from qkv.scripts.training.logger import MetricLogger
from qkv.scripts.training.loop import Loop, Step
from qkv.scripts.training.record import METRICS, Clock, read_record
from qkv.scripts.training.signals import Interrupted, SignalHandler
from qkv.scripts.training.state import MODEL, capture, load_weights, restore

# The folder of checkpoints, the state in each, and the lock of a process that writes to such a folder or to a sweep.
CHECKPOINTS, STATE, LOCK = "checkpoints", "state.json", ".lock"
# Fields that may change when a training is resumed: its steps stay the same, only split or logged in another way.
FREE = {
    "accumulate", "card", "eval_every", "gradient_checkpointing", "keep", "limits", "log_every", "out",
    "patience", "prompt", "resume", "save_every", "save_minutes", "strategy", "tensor_parallel", "threads", "title",
    "tracker", "workers",
}  # fmt: skip
SHARE = 0.03  # of the time, for saving by the clock


@contextmanager
def locked_folder(recipe: Recipe, accelerator: Accelerator, record: dict[str, Any]) -> Iterator[Path]:
    """Open and lock a new or empty run folder, or one to resume; FileExistsError for other content or another lock."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")

    def opened() -> Path:
        tell_of_stopped_run(recipe, record)
        folder = Path(recipe.output.folder or value_of_first_attempt("out", f"runs/{recipe.name}-{stamp}"))
        ours = recipe.output.resume == "auto" and any((folder / name).exists() for name in (CHECKPOINTS, RECORD))
        if not ours and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} is not empty; give another out=, or remove it")
        # Marks the folder as ours before anything else is written.
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        return folder

    folder = run_on_main(accelerator, opened)
    with (folder / CHECKPOINTS / LOCK).open("a") as file:
        run_on_main(accelerator, lambda: lock_training(file, folder))
        yield folder


def lock_training(file: IO[str], folder: Path) -> None:
    """Lock the file of a training or a sweep; not by flock, which data workers would hold for seconds after a kill."""
    lock(file.fileno(), "lockf", f"another training writes to {folder}; wait for it, or give another out=")


def tell_of_stopped_run(recipe: Recipe, record: dict[str, Any]) -> None:
    """Print which run of the same training was stopped, for a training that starts anew because it names no `out=`."""
    is_new = recipe.output.folder is None and recipe.output.resume == "auto"
    found = Path("runs").glob(f"{escape(recipe.name)}-*/{CHECKPOINTS}/*/{STATE}") if is_new else ()
    for path in sorted(found, reverse=True):
        folder = path.parents[2]
        with suppress(OSError, ValueError, KeyError), (folder / CHECKPOINTS / LOCK).open("a") as file:
            lock_training(file, folder)  # or it is being trained
            check_same_training(state := json.loads(path.read_text(encoding="utf-8")), record, folder)
            if not (folder / RECORD).exists():
                done = f"step {state['step']} of {state['recipe']['max_steps']}"
                say(f"{folder} is this training, stopped after {done}; this command with out={folder} goes on there")
                return


def finished_record(folder: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of a training that has all its steps, or None; ValueError when it was another training."""
    if not (folder / RECORD).exists():  # it is written last
        return None
    saved = read_record(folder)
    check_same_training(saved, record, folder)
    if saved["recipe"]["max_steps"] == record["recipe"]["max_steps"]:
        return saved
    if not any((folder / CHECKPOINTS).glob("step-*")):
        raise ValueError(
            f"{folder} is finished and has no checkpoint to go on from; give another out= and init={folder}"
        )
    return None


def check_same_training(saved: dict[str, Any], wanted: dict[str, Any], where: Path) -> None:
    """Raise ValueError for the first field in which two trainings differ, except more steps."""
    one, other = comparable(saved), comparable(wanted)
    # An inferred warm-up follows the length of the training.
    grows = ("max_steps", "warmup_steps") if other.get("max_steps", 0) > one.get("max_steps", 0) else ()
    for key in one | other:
        was, now = one.get(key), other.get(key)
        if was != now and key not in grows:
            raise ValueError(
                f"{where} is of a training with {key}={was!r}, and this one has {now!r}; set it back to resume, or "
                "give another out="
            )


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a resumed training must keep: recipe, config and the hash of the data."""
    recipe = {name: value for name, value in record["recipe"].items() if name not in FREE}
    groups = {"model": recipe.pop("model"), "augment": recipe.pop("augment"), "config": record["config"]}
    nested = {f"{group}.{name}": value for group, fields in groups.items() for name, value in fields.items()}
    nested.pop("config.transformers_version", None)
    # As JSON has it: no tuples, and keys are texts.
    fields: dict[str, Any] = json.loads(json.dumps(recipe | nested))
    return {**fields, "data": record["data"]["sha256"]}


def should_save(step: Step, recipe: Recipe) -> bool:
    """Return whether to save a checkpoint after a step, whatever an evaluation finds."""
    every, last = recipe.output.save_every, step.number == recipe.optimization.max_steps
    return last or step.save or step.stop or (every is not None and step.number % every == 0)


def command_again(recipe: Recipe, folder: Path) -> str:
    """Return the words to type to resume a training."""
    words = [f"out={folder}"] if recipe.output.folder is None else []
    words += ["resume=auto"] if recipe.output.resume == "never" else []
    return f"the same command with {' '.join(words)}" if words else "the same command"


@dataclass
class CheckpointManager:
    """Save the state of a training in its run folder, and resume from it.

    With the same number of processes a resumed training ends with the same bits as without the interruption. `resumed`
    are the steps at which it was resumed, `earlier` the seconds before that.
    """

    loop: Loop
    logger: MetricLogger
    early_stopping: EarlyStopping
    record: dict[str, Any]
    resumed: tuple[int, ...] = ()
    earlier: dict[str, float] = field(default_factory=lambda: {"wall_s": 0.0, "cpu_s": 0.0})
    clock: Clock = field(default_factory=Clock)
    average: WeightAverage = field(default_factory=WeightAverage)

    def __post_init__(self) -> None:
        self.folder = self.logger.path.parent
        self.checkpoints = Checkpoints(self.folder / CHECKPOINTS, self.loop.recipe.output.keep)
        self.saved, self.cost = time.monotonic(), 0.0  # when the last save began, and its seconds

    def update(self, results: dict[str, dict[str, float]]) -> bool:
        """Log an evaluation, and return whether to save it as the best so far of a watched metric."""
        self.average.add(self.loop)
        best = self.early_stopping.update(self.loop.done, results)
        self.logger.best = self.early_stopping.sentence
        self.logger.log_evaluation(self.loop.done, results)
        return best and self.early_stopping.metric is not None

    def save_requested(self) -> bool:
        """Return whether `save_minutes` have passed on the main process, or more where saving takes much time."""
        minutes, passed = self.loop.recipe.output.save_minutes, time.monotonic() - self.saved
        due = minutes is not None and passed >= max(60 * minutes, self.cost / SHARE)
        return due and self.loop.accelerator.is_main_process

    def tensors(self, step: int) -> Tensors:
        """Read the tensors of a checkpoint, on the main process."""
        files = self.checkpoints.path(step).glob("*.safetensors")
        return {path.name: load_file(path) for path in files} if self.loop.accelerator.is_main_process else {}

    def save(self) -> None:
        """Save the state after the step just taken; OSError on every process when the main one cannot write it."""
        self.saved = time.monotonic()
        tensors, facts = capture(self.loop)
        facts |= {name: self.record[name] for name in ("recipe", "config", "data")}
        facts |= {"logger": self.logger.state_dict(), "early_stopping": vars(self.early_stopping)}
        facts |= {"averaged": self.average.steps}
        tensors |= {MEAN: self.average.mean} if self.average.mean else {}
        facts |= {"time": self.clock.read(), "resumed": self.resumed, "versions": versions()}
        metrics = self.logger.path.read_text(encoding="utf-8") if self.logger.path.exists() else ""
        texts = {STATE: json.dumps(facts) + "\n", METRICS: metrics}
        written = (self.loop.done, tensors, texts, self.early_stopping.best_step)
        run_on_main(self.loop.accelerator, lambda: self.checkpoints.save(*written))
        self.cost = time.monotonic() - self.saved

    def interrupt(self, handler: SignalHandler) -> NoReturn:
        """End a saved training on all processes, by Interrupted with the command that resumes it."""
        accelerator, recipe = self.loop.accelerator, self.loop.recipe
        self.loop.close()
        message = f"stopped at step {self.loop.done}; {command_again(recipe, self.folder)} resumes from there"
        raise Interrupted(message if accelerator.is_main_process else "", handler.number or signal.SIGTERM)

    def load_kept(self) -> None:
        """Load the weights of the best evaluation, or a mean of weights, which is evaluated."""
        if steps := self.average.steps:
            load_weights(self.loop, self.average.mean)
            splits = self.loop.task.splits.items()
            self.early_stopping.results = {name: self.loop.evaluate(own) for name, own in splits if name != "test"}
            say(f"the weights that are kept are the mean of those after steps {', '.join(map(str, steps))}")
        elif self.early_stopping.step != self.loop.done:
            load_weights(self.loop, self.tensors(self.early_stopping.step).get(MODEL, {}))

    def resume(self) -> str:
        """Resume from the newest checkpoint, and return a sentence about it; ValueError for another training's."""
        state, sentence = run_on_main(self.loop.accelerator, self.read)
        if state is None:
            return sentence
        restore(self.loop, tensors := self.tensors(state["step"]), state)
        self.average = WeightAverage(state["averaged"], tensors.get(MEAN, {}))
        self.logger.load_state_dict(state["logger"])
        vars(self.early_stopping).update(state["early_stopping"] | {"patience": self.early_stopping.patience})
        self.logger.best = self.early_stopping.sentence
        self.resumed = (*state["resumed"], self.loop.done)
        self.earlier = state["time"]
        self.clock.add(self.earlier)
        was, now = (facts["max_steps"] for facts in (state["recipe"], self.record["recipe"]))
        if was != now:
            self.early_stopping.waited = 0
            sentence = f"{sentence}; {now} steps instead of {was}, and the learning rate follows the longer schedule"
        return sentence

    def read(self) -> tuple[dict[str, Any] | None, str]:
        """Read the state of the newest complete checkpoint, and restore its metrics file; None without one."""
        self.checkpoints.folder.mkdir(exist_ok=True)
        step, skipped = self.checkpoints.newest()
        if step is None:
            if not self.logger.path.exists():
                return None, skipped
            self.logger.path.unlink()
            return None, f"{self.folder} has no checkpoint yet, so the training starts again from its first step"
        folder = self.checkpoints.path(step)
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        check_same_training(state, self.record, folder)
        write_atomically(self.logger.path, (folder / METRICS).read_bytes())
        return state, skipped or f"resuming from {folder}"
