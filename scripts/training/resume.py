"""Save the state of a training, and resume from the newest one when the same command is given again."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NoReturn

from accelerate import Accelerator
from safetensors.torch import load_file

from qkv.scripts.common.environment import versions
from qkv.scripts.common.files import RECORD, write_atomically
from qkv.scripts.common.run_folder import CHECKPOINTS, FREE, LOCK, METRICS, STATE
from qkv.scripts.data.examples import Examples
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.checkpoint import Checkpoints, Tensors
from qkv.scripts.training.distributed import run_on_main, value_of_first_attempt
from qkv.scripts.training.early_stopping import EarlyStopping
from qkv.scripts.training.logger import MetricLogger
from qkv.scripts.training.loop import Loop, Step
from qkv.scripts.training.pace import SavePace
from qkv.scripts.training.record import Clock, read_record
from qkv.scripts.training.signals import Interrupted, SignalHandler
from qkv.scripts.training.state import capture, follow_schedule, restore


def open_folder(recipe: Recipe, accelerator: Accelerator) -> Path:
    """Open the run folder: new, empty or that of a run to resume; FileExistsError when it holds anything else."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")

    def opened() -> Path:
        folder = Path(recipe.output.folder or value_of_first_attempt("out", f"runs/{recipe.name}-{stamp}"))
        ours = recipe.output.resume == "auto" and any((folder / name).exists() for name in (CHECKPOINTS, RECORD))
        if not ours and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} is not empty; give another out=, or remove it")
        # This marks it as ours from the start, whatever else is written first.
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        return folder

    return run_on_main(accelerator, opened)


@contextmanager
def locked_folder(recipe: Recipe, accelerator: Accelerator) -> Iterator[Path]:
    """Open the run folder, and keep other trainings out of it within the block; FileExistsError where one is in it."""
    folder = open_folder(recipe, accelerator)
    with (folder / CHECKPOINTS / LOCK).open("a") as file:
        run_on_main(accelerator, lambda: lock(file, folder))
        yield folder


def lock(file: IO[str], folder: Path) -> None:
    """Lock a file until it is closed or its process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        return
    try:
        # Not flock: data workers would hold it for seconds after a training that was killed.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise FileExistsError(f"another training writes to {folder}; wait for it, or give another out=") from None
    except OSError:  # a file system without locks
        return


def finished_record(folder: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of a finished training in the folder, or None; ValueError when it was another training.

    A training that shall now take more steps is not finished.
    """
    # The record is the last thing that a training writes.
    if not (folder / RECORD).exists():
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
    """Raise ValueError for the first field in which the records of two trainings differ; steps may become more."""
    one, other = comparable(saved), comparable(wanted)
    for key in one | other:
        was, now = one.get(key), other.get(key)
        if was != now and not (key == "max_steps" and int(now or 0) > int(was or 0)):
            raise ValueError(
                f"{where} is of a training with {key}={was!r}, and this one has {now!r}; set it back to resume, or "
                "give another out="
            )


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal for a training to be resumed: fields of the recipe and the config, and the data."""
    recipe = {name: value for name, value in record["recipe"].items() if name not in FREE}
    groups = {"model": recipe.pop("model"), "augment": recipe.pop("augment"), "config": record["config"]}
    nested = {f"{group}.{name}": value for group, fields in groups.items() for name, value in fields.items()}
    nested.pop("config.transformers_version", None)
    # As JSON has it: no tuples, and keys are texts.
    fields: dict[str, Any] = json.loads(json.dumps(recipe | nested))
    return {**fields, "data": record["data"]["sha256"]}


def should_save(step: Step, recipe: Recipe) -> bool:
    """Return whether a checkpoint is to be saved after a step, whatever an evaluation finds."""
    every, last = recipe.output.save_every, step.number == recipe.optimization.max_steps
    return last or step.save or step.stop or (every is not None and step.number % every == 0)


def command_again(recipe: Recipe, folder: Path) -> str:
    """Return what to type to resume a training."""
    words = [f"out={folder}"] if recipe.output.folder is None else []
    words += ["resume=auto"] if recipe.output.resume == "never" else []
    return f"the same command with {' '.join(words)}" if words else "the same command"


@dataclass
class CheckpointManager:
    """Save the state of a training in its run folder, and resume from it.

    A resumed training goes on as it would have without the interruption, bit by bit, if the number of processes is the
    same; its metrics are those that were written until then. `resumed` are the steps from which it was resumed, and
    `earlier` the seconds it had taken by then.
    """

    loop: Loop
    logger: MetricLogger
    early_stopping: EarlyStopping
    record: dict[str, Any]
    resumed: tuple[int, ...] = ()
    earlier: dict[str, float] = field(default_factory=lambda: {"wall_s": 0.0, "cpu_s": 0.0})
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        output, self.folder = self.loop.recipe.output, self.logger.path.parent
        self.checkpoints = Checkpoints(self.folder / CHECKPOINTS, output.keep, background=output.async_save)
        minutes = output.save_minutes
        self.pace = SavePace(60 * minutes if minutes else None)

    def update(self, results: dict[str, dict[str, float]]) -> bool:
        """Log an evaluation, and return whether it is the best so far of the watched metric, and so to be saved."""
        best = self.early_stopping.update(self.loop.done, results)
        self.logger.best = self.early_stopping.sentence
        self.logger.log_evaluation(self.loop.done, results)
        return best and self.early_stopping.metric is not None

    def evaluate(self, splits: Mapping[str, Examples]) -> bool:
        """Evaluate splits and log that, and return whether it is the best so far, and so to be saved."""
        with self.pace.timed("evaluation"):
            return self.update({name: self.loop.evaluate(split) for name, split in splits.items()})

    def save_requested(self) -> bool:
        """Return whether a checkpoint is due after the step that begins, by the clock of the main process."""
        every, done = self.loop.recipe.output.eval_every, self.loop.done
        due = self.pace.due(sum((done + ahead) % every == 0 for ahead in (1, 2)))
        return due and self.loop.accelerator.is_main_process

    def tensors(self, step: int) -> Tensors:
        """Read the tensors of a checkpoint, on the main process."""
        files = self.checkpoints.path(step).glob("*.safetensors")
        return {path.name: load_file(path) for path in files} if self.loop.accelerator.is_main_process else {}

    def save(self) -> None:
        """Save the state after the step just taken; OSError on every process when the main one cannot write it."""
        with self.pace.timed("save"):
            tensors, facts = capture(self.loop)
            facts |= {name: self.record[name] for name in ("recipe", "config", "data")}
            facts |= {"logger": self.logger.state_dict(), "early_stopping": self.early_stopping.state_dict()}
            facts |= {"time": self.clock.read(), "resumed": self.resumed, "versions": versions()}
            metrics = self.logger.path.read_text(encoding="utf-8") if self.logger.path.exists() else ""
            texts = {STATE: json.dumps(facts) + "\n", METRICS: metrics}
            written = (self.loop.done, tensors, texts, self.early_stopping.best_step)
            run_on_main(self.loop.accelerator, lambda: self.checkpoints.save(*written))

    def wait(self) -> None:
        """Wait until everything is saved; OSError on every process when it could not be."""
        run_on_main(self.loop.accelerator, self.checkpoints.wait)

    def interrupt(self, handler: SignalHandler) -> NoReturn:
        """End a training whose state is saved, on all processes; Interrupted says how to resume it."""
        self.wait()
        accelerator, recipe = self.loop.accelerator, self.loop.recipe
        self.loop.close()
        message = f"stopped at step {self.loop.done}; {command_again(recipe, self.folder)} resumes from there"
        raise Interrupted(message if accelerator.is_main_process else "", handler.number or signal.SIGTERM)

    def resume(self) -> str:
        """Resume from the newest complete checkpoint, and return a sentence about it, empty where there is none.

        ValueError when it is of another training.
        """
        state, sentence = run_on_main(self.loop.accelerator, self.read)
        if state is None:
            return sentence
        restore(self.loop, self.tensors(state["step"]), state)
        self.logger.load_state_dict(state["logger"])
        self.early_stopping.load_state_dict(state["early_stopping"])
        self.logger.best = self.early_stopping.sentence
        self.logger.show(self.loop.done)
        self.resumed = (*state["resumed"], self.loop.done)
        self.earlier = state["time"]
        self.clock.add(self.earlier)
        was, now = (facts["max_steps"] for facts in (state["recipe"], self.record["recipe"]))
        if was != now:
            self.early_stopping.waited = 0
            sentence = f"{sentence}; {now} steps instead of {was}: {follow_schedule(self.loop)}"
        return sentence

    def read(self) -> tuple[dict[str, Any] | None, str]:
        """Read the newest complete checkpoint but for its tensors, and put its metrics back; None without one."""
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
