"""How does a training go on where it was? One command, given again, finds the newest state and takes it up."""

import json
import signal
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

from accelerate import Accelerator
from safetensors.torch import load_file

from qkv.scripts.common.environment import versions
from qkv.scripts.common.files import write_atomically
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.checkpoint import Checkpoints, Snapshot, manifest
from qkv.scripts.training.distributed import agreed, lasting
from qkv.scripts.training.early_stopping import Watch
from qkv.scripts.training.logger import Journal
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.record import Clock
from qkv.scripts.training.signals import Interrupt, Interrupted
from qkv.scripts.training.state import Tensors, adopt, capture

FOLDER, STATE, LOG = "checkpoints", "state.json", "metrics.jsonl"
# What may be another when a training goes on: the steps to come are the same ones, only cut up or looked at otherwise.
FREE = {
    "accumulate", "async_save", "eval_every", "gradient_checkpointing", "keep", "limits", "log_every", "out", "resume",
    "patience", "prompt", "save_every", "strategy", "tensor_parallel", "threads", "title", "tracker", "workers",
}  # fmt: skip


def open_folder(recipe: Recipe, accelerator: Accelerator) -> Path:
    """The run folder: new, empty or that of a run to go on with; FileExistsError when it holds anything else."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")

    def opened() -> Path:
        folder = Path(recipe.out or lasting("out", f"runs/{recipe.name}-{stamp}"))
        ours = recipe.resume == "auto" and any((folder / name).exists() for name in (FOLDER, "record.json"))
        if not ours and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} is not empty; give another out=, or remove it")
        # This makes it ours from the start, whatever else is written first.
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        return folder

    return agreed(accelerator, opened)


def finished(folder: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """The record that a finished training left in the folder, or None; ValueError when it was another training."""
    # The card is the last thing to be written.
    if not (folder / "record.json").exists() or not (folder / "card.md").exists():
        return None
    found: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    refuse_other(found, record, folder)
    return found


def refuse_other(found: dict[str, Any], wanted: dict[str, Any], where: Path) -> None:
    """ValueError naming the first thing by which the record of one training differs from that of another."""
    one, other = comparable(found), comparable(wanted)
    for key in [*one, *(key for key in other if key not in one)]:
        was, now = one.get(key), other.get(key)
        if was != now:
            raise ValueError(
                f"{where} is of a training with {key}={was!r}, and this one has {now!r}; set it back to go on, or give "
                "another out="
            )


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a training to go on: fields of the recipe and the config, and the data."""
    config = {name: value for name, value in record["config"].items() if name != "transformers_version"}
    recipe = {name: value for name, value in record["recipe"].items() if name not in FREE}
    nested = {"model": recipe.pop("model"), "augment": recipe.pop("augment")}
    groups = {f"{group}.{name}": value for group in nested for name, value in nested[group].items()}
    # As JSON has it: no tuples, and names of numbers are texts.
    fields: dict[str, Any] = json.loads(
        json.dumps({**recipe, **groups, **{f"config.{k}": v for k, v in config.items()}})
    )
    return {**fields, "data": record["data"]["sha256"]}


class Part(Protocol):
    """What has a state that JSON can say."""

    def state(self) -> dict[str, Any]:
        """The state after the last step."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""


@dataclass
class Keeper:
    """Saves the state of a training in its run folder, and takes it up again.

    What happens after a state was taken up is what would have happened without the interruption, bit by bit, if the
    number of processes is the same; the metrics are those that were written until then.
    """

    loop: Loop
    journal: Journal
    checkpoints: Checkpoints
    record: dict[str, Any]
    clock: Clock
    watch: Watch
    # What has a state, by name.
    parts: dict[str, Part]
    # The steps from which the training went on, and the seconds it had taken by then.
    resumed: tuple[int, ...] = ()
    earlier: dict[str, float] = field(default_factory=lambda: {"wall_s": 0.0, "cpu_s": 0.0})

    @classmethod
    def of(cls, loop: Loop, journal: Journal, watch: Watch, record: dict[str, Any]) -> "Keeper":
        """That of a run, whose clock starts now."""
        recipe = loop.recipe
        checkpoints = Checkpoints(journal.folder / FOLDER, recipe.keep, background=recipe.async_save)
        return cls(loop, journal, checkpoints, record, Clock(), watch, {"journal": journal, "watch": watch})

    def note(self, results: dict[str, dict[str, float]]) -> bool:
        """Take note of an evaluation; whether it is the best so far of what is watched, and so to be saved."""
        self.journal.results(self.loop.done, results)
        best = self.watch.note(self.loop.done, results) and self.watch.metric is not None
        if best:
            self.checkpoints.best = self.loop.done
        return best

    def tensors(self, step: int) -> Tensors:
        """What the checkpoint of a step holds, on the main process."""
        files = self.checkpoints.path(step).glob("*.safetensors")
        return {path.name: load_file(path) for path in files} if self.loop.accelerator.is_main_process else {}

    def save(self) -> None:
        """Save the state after the step just taken; OSError on every process when the main one cannot write it."""
        tensors, facts = capture(self.loop)
        agreed(self.loop.accelerator, lambda: self.write(tensors, facts))

    def write(self, tensors: Any, facts: dict[str, Any]) -> None:
        """Write a captured state, or have it written."""
        if self.checkpoints.background:
            # The loop goes on with its own, which on a CPU are the same.
            tensors = {file: {name: value.clone() for name, value in found.items()} for file, found in tensors.items()}
        run = {name: self.record[name] for name in ("recipe", "config", "data")}
        parts = {name: part.state() for name, part in self.parts.items()}
        own = {"parts": parts, "time": self.clock.read(), "resumed": self.resumed, "versions": versions()}
        texts = {STATE: json.dumps({**facts, **run, **own}) + "\n"}
        texts[LOG] = self.journal.path.read_text(encoding="utf-8") if self.journal.path.exists() else ""
        self.checkpoints.save(Snapshot(self.loop.done, tensors, texts, self.checkpoints.best))

    def wait(self) -> None:
        """Return when everything is saved; OSError on every process when it could not be."""
        agreed(self.loop.accelerator, self.checkpoints.wait)

    def leave(self, interrupt: Interrupt) -> NoReturn:
        """End a training whose state is saved, on all processes; Interrupted says how to go on."""
        self.wait()
        accelerator, recipe = self.loop.accelerator, self.loop.recipe
        accelerator.end_training()
        words = [f"out={self.journal.folder}"] if recipe.out is None else []
        words += ["resume=auto"] if recipe.resume == "never" else []
        command = f"the same command with {' '.join(words)}" if words else "the same command"
        message = f"stopped at step {self.loop.done}; {command} goes on from there"
        raise Interrupted(message if accelerator.is_main_process else "", interrupt.number or signal.SIGTERM)

    def resume(self) -> str:
        """Take up the newest complete state; a sentence about what was skipped or taken up, or nothing.

        ValueError when the state is that of another training.
        """
        found, sentence = agreed(self.loop.accelerator, self.read)
        if found is None:
            return sentence
        adopt(self.loop, self.tensors(found["step"]), found)
        for name, part in self.parts.items():
            part.restore(found["parts"][name])
        self.journal.show(self.loop.done)
        self.resumed = (*found["resumed"], self.loop.done)
        self.earlier = found["time"]
        self.clock.forward(self.earlier)
        return sentence

    def read(self) -> tuple[dict[str, Any] | None, str]:
        """The newest complete state without its tensors, with its metrics where they were; None where there is none."""
        checkpoints = self.checkpoints
        checkpoints.folder.mkdir(exist_ok=True)
        step, skipped = checkpoints.newest()
        if step is None:
            self.journal.path.unlink(missing_ok=True)
            return None, skipped
        folder = checkpoints.path(step)
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        refuse_other(state, self.record, folder)
        checkpoints.best = manifest(folder)["best"]
        write_atomically(self.journal.path, (folder / LOG).read_bytes())
        return state, skipped or f"resuming from {folder}"
