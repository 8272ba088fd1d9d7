"""Trainings whose result does not depend on the number of processes, nor on the strategy.

Tests import the cases from here; `main` is that of one of several processes (its rank and the others' come from the
environment, as launchers set them): it trains every case by every engine, and writes the curves to a folder.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

import gradient_worker as examples
import qkv.modeling as models
import tiny
from gradient_worker import TASKS, Example
from qkv.scripts.data.examples import Batch
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.contrastive import batch_loss
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.accelerator import build_accelerator, data_parallel, full_model, make_model, seed_ranks
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.state import capture, restore
from recipes import recipe_of
from tiny_training import task_of

RECIPE = recipe_of(name="scale", batch_size=8, learning_rate=1e-3, warmup_steps=3, weight_decay=0.1, max_grad_norm=0.5)
ENGINES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "accumulate": 2},
    "fsdp2": {"strategy": "fsdp2", "accumulate": 2},
    "ddp, in one part": {"strategy": "ddp"},
    "tensor parallel": {"tensor_parallel": 2, "accumulate": 2},
    "tensor parallel, in one part": {"tensor_parallel": 2},
    "tensor parallel and fsdp2": {"halt": 2, "tensor_parallel": 2, "accumulate": 2},
    "fsdp2, bf16": {"strategy": "fsdp2", "accumulate": 2, "precision": "bf16"},
    "tensor parallel, bf16": {"tensor_parallel": 2, "accumulate": 2, "precision": "bf16"},
    "fsdp2, resumed": {"halt": 2, "strategy": "fsdp2", "gradient_checkpointing": True},
    "tensor parallel, resumed": {"halt": 2, "tensor_parallel": 2, "gradient_checkpointing": True},
}
Curve = dict[str, list[float]]


class Rows:
    """The rows of one padded batch, so that parts of it have as many tokens together."""

    def __init__(self, rows: list[Example]) -> None:
        self.size, self.batch = len(rows), examples.pad(rows)

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def part(self, rows: Sequence[int], dtype: torch.dtype) -> Batch:
        """These rows, their floats in a type."""
        chosen = {key: [value[row] for row in rows] for key, value in self.batch.items()}
        batch = {key: torch.stack(value) if torch.is_tensor(value[0]) else value for key, value in chosen.items()}
        return tree_map(lambda value: value.to(dtype) if torch.is_floating_point(value) else value, batch)


def packed() -> list[Example]:
    """Two documents in each row."""
    rows = []
    for row in range(examples.ROWS):
        words, second = examples.ids(9, row), row % 5 + 2
        labels = [word if place % (row + 1) == 0 else -100 for place, word in enumerate(words)]
        places = [place - second * (place >= second) for place in range(9)]
        rows.append({"input_ids": words, "position_ids": places, "labels": labels})
    return rows


def scenes() -> list[Example]:
    """Images with very different numbers of objects, and their masks."""
    return [{**example, "pixel_mask": torch.ones(8, 24, dtype=torch.long)} for example in examples.scenes()]


def mixture() -> PreTrainedModel:
    """A mixture whose experts are computed one by one, as grouped products have no double precision."""
    fields = {"feed_forward": "moe", "num_experts": 4, "score_correction_bias": True}
    model = models.QkvDecoderForCausalLM(tiny.decoder("llama", **fields))
    model.set_experts_implementation("eager")
    return model


CASES = {
    "encoder": TASKS["mlm"],
    "decoder": TASKS["clm"],
    "packed": examples.task("DecoderForCausalLM", tiny.decoder, "llama", packed),
    "encoder-decoder": TASKS["seq2seq"],
    "vit": TASKS["images"],
    "answers": TASKS["spans"],
    "peptides": TASKS["peptides"],
    "alibi": examples.task("DecoderForCausalLM", tiny.decoder, "bloom", examples.next_words),
    "t5": examples.task("EncoderDecoderForConditionalGeneration", tiny.encoder_decoder, "t5", examples.translations),
    "normed heads": examples.task("DecoderForCausalLM", tiny.decoder, "neox", examples.next_words),
    "mixture": examples.Task(mixture, examples.next_words),
    "recurrent": TASKS["recurrent"],
    "ctc": TASKS["ctc"],
    "speech": TASKS["speech"],
    "pairs": examples.PAIRS,
    "scenes": examples.task(
        "DetectionForObjectDetection", tiny.detector, "detr", scenes, fields={"auxiliary_loss": True}
    ),
    "dropout": examples.Task(lambda: models.QkvDecoderForCausalLM(tiny.decoder("gpt2")), examples.next_words),
}


@contextmanager
def fresh_state() -> Iterator[None]:
    """Reset the state that Accelerate keeps in the process, before and after."""
    before = dict(os.environ)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        yield
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        os.environ.clear()
        os.environ.update(before)


def begin(recipe: Recipe, build: Callable[[], PreTrainedModel], task: Task) -> Loop:
    """A training at its start."""
    accelerator = build_accelerator(recipe)
    loop = Loop(accelerator, make_model(accelerator, recipe, build), recipe, task)
    seed_ranks(accelerator, recipe.seed)
    return loop


def resumed(loop: Loop, start: Callable[[], Loop]) -> Loop:
    """Another training at its start, brought to the state of this one as a checkpoint has it."""
    tensors, facts = capture(loop)
    (text,) = broadcast_object_list([json.dumps(facts)])
    AcceleratorState._reset_state(reset_partial_state=True)
    # Left by the plugin, as if a launcher had said it.
    os.environ.pop("ACCELERATE_USE_FSDP", None)
    found = start()
    restore(found, tensors if found.accelerator.is_main_process else {}, json.loads(text))
    return found


def taught(name: str, dtype: torch.dtype, answers: list[Answer]) -> Task:
    """The task of a case, which keeps the texts that a model writes in evaluation."""
    is_decoder = name in ("decoder", "packed", "mixture", "alibi", "normed heads", "dropout")
    data = Rows(CASES[name].examples())

    def collate(records: Sequence[int], places: Sequence[int] | None) -> Batch:
        in_contest = name == "pairs" and places is not None
        return data.part(records, dtype) | ({"return_loss": torch.tensor(True)} if in_contest else {})

    def count(batch: Batch) -> int | Tensor:
        if name == "pairs":
            return len(batch["input_ids"])
        starts = torch.as_tensor(batch.get("position_ids", 1)) == 0
        counted = {**batch, "labels": batch["labels"].masked_fill(starts, -100)[:, 1:]} if is_decoder else batch
        found = examples.targets(counted)
        return found if found.ndim else int(found)

    def write(model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        # Processes that share weights need each other to the end of the longest text.
        longest = 4 + 2 * data_parallel(AcceleratorState())[0]
        inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
        written = model.generate(**inputs, max_new_tokens=longest, eos_token_id=None, do_sample=False)
        return [(str(text), "") for text in written[:, :5].tolist()]

    def reduce(sums: dict[str, float], found: Any) -> dict[str, float]:
        answers.extend(found)
        return Task.reduce(None, sums, found)

    own: dict[str, Any] = {
        "pairs": {"score": lambda outputs, batch: {"loss": batch_loss(outputs)}},
        "scenes": {"score": lambda outputs, batch: {"loss": outputs.logits.sum()}},  # the loss is not of parts
        "encoder-decoder": {"answer": write},
    }
    task = task_of(data, {"test": data}, count=count, collate=collate, reduce=reduce, **own.get(name, {}))
    task.in_batch_negatives = name == "pairs"
    return task


def curve(name: str, dtype: str, steps: int, halt: int = 0, **fields: Any) -> tuple[Curve, PreTrainedModel]:
    """The log and the model of a training in this process's share of the world.

    After `halt` steps another training continues from its state.
    """

    def build() -> PreTrainedModel:
        torch.manual_seed(0)
        return CASES[name].build().to(getattr(torch, dtype))

    answers: list[Answer] = []
    task = taught(name, getattr(torch, dtype), answers)
    start = partial(begin, changed(RECIPE, max_steps=steps, **fields), build, task)
    loop = start()
    untrained = loop.evaluate(task.splits["test"])["loss"]
    taken = list(islice(loop.steps(), halt))
    loop = resumed(loop, start) if halt else loop
    taken += loop.steps()
    found = {
        "loss": [step.loss.item() for step in taken],
        "norm": [step.grad_norm.item() for step in taken],
        "tokens": [int(step.tokens) for step in taken],
        "evaluation": [untrained, loop.evaluate(task.splits["test"])["loss"]],
        "written": sorted(text for text, _ in answers),
        # Copies of every process must stay equal.
        "copies": [value.double().sum().item() for value in loop.model.parameters() if not isinstance(value, DTensor)],
    }
    return found, full_model(loop.accelerator, loop.model)


def main(place: str, trainings: str, steps: str) -> None:
    """Train (case, engine, dtype) one after the other; the main process saves the models."""
    folder = Path(place)
    for name, way, dtype in json.loads(trainings):
        with fresh_state():
            found, model = curve(name, dtype, int(steps), **ENGINES[way])
        own = folder / name / way / dtype
        if os.environ["RANK"] == "0":
            model.save_pretrained(own)
        else:
            own.mkdir(parents=True, exist_ok=True)
        (own / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
