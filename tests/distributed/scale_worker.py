"""Trainings that must come out the same however many processes share them, and in whatever way.

Tests import the cases from here; `main` is that of one of several processes (its rank and the others' come from the
environment, as launchers set them): it trains every case under every engine, and writes the curves to a folder.
"""

import json
import os
from collections.abc import Callable, Iterator
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
from transformers import PreTrainedModel

import qkv.modeling as models
import tiny
from qkv.scripts.data.examples import Batch, stack
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.contrastive import batch_loss
from qkv.scripts.tasks.object_detection import ObjectDetection
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training import loop as loop_module
from qkv.scripts.training.accelerator import build_accelerator, data_parallel, full_model, make_model, seed_ranks
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.state import capture, restore
from recipes import recipe_of
from tiny_training import task_of

NO_DROPOUT = {"embedding_dropout": 0.0, "attention_dropout": 0.0, "residual_dropout": 0.0}
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
    "zero2": {"halt": 2, "accumulate": 2},
    "zero3": {"halt": 2, "accumulate": 2},
    "fsdp2, averaged": {"halt": 2, "strategy": "fsdp2", "ema_decay": 0.9, "gradient_checkpointing": True},
    "tensor parallel, averaged": {"halt": 2, "tensor_parallel": 2, "ema_decay": 0.9, "gradient_checkpointing": True},
}
# Weights and gradients of tiny models would not be cut up by DeepSpeed's own sizes.
SMALL = {"reduce_bucket_size": 1000, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 1000}
Curve = dict[str, list[float]]


class Rows:
    """Examples of any kind, one by one."""

    def __init__(self, rows: list[dict[str, Tensor]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: Any) -> list[dict[str, Tensor]]:
        return [self.rows[index] for index in indices]


def words(*shape: int, seed: int) -> Tensor:
    return torch.randint(4, tiny.VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def sparse(labels: Tensor) -> Tensor:
    """Targets for few places in some rows, and for many in others, so that a mean of means is far from the mean."""
    rows = torch.arange(len(labels))[:, None]
    return labels.masked_fill(torch.arange(labels.shape[1]) % (rows % 5 + 1) != 0, -100)


def rows(**columns: Tensor) -> Rows:
    return Rows([dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)])


def text() -> Rows:
    mask = (torch.arange(9) < torch.arange(24)[:, None] % 7 + 3).long()
    return rows(input_ids=words(24, 9, seed=1), attention_mask=mask, labels=sparse(words(24, 9, seed=2)))


def packed() -> Rows:
    """Two documents in each row."""
    second = torch.arange(24)[:, None] % 5 + 2
    place = torch.arange(9).expand(24, 9)
    ids = words(24, 9, seed=1)
    return rows(input_ids=ids, position_ids=place - second * (place >= second), labels=sparse(ids))


def pairs() -> Rows:
    return rows(
        input_ids=words(24, 7, seed=1), attention_mask=torch.ones(24, 7, dtype=torch.long),
        labels=sparse(words(24, 9, seed=2)),
    )  # fmt: skip


def pictures() -> Rows:
    pixels = torch.randn(24, 3, 12, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.arange(24) % tiny.LABELS
    return rows(pixel_values=pixels, labels=labels.masked_fill(torch.arange(24) % 5 == 0, -100))


def sound() -> Rows:
    frames = torch.randn(24, 41, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = (torch.arange(41) < torch.arange(24)[:, None] % 7 + 35).long()
    return rows(input_features=frames, attention_mask=mask, labels=sparse(words(24, 4, seed=2)))


def captions() -> Rows:
    """Texts of different lengths that end, each with an image."""
    pixels = torch.randn(24, 3, 12, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    last = (torch.arange(24) % 4 + 3)[:, None]
    ids = words(24, 7, seed=1).scatter(1, last, tiny.END)
    mask = (torch.arange(7) <= last).long()
    return rows(input_ids=ids.where(mask.bool(), tiny.PAD), attention_mask=mask, pixel_values=pixels)


def scenes() -> Rows:
    """Images with no, one or several objects each, so that processes have different numbers of them."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(24, 3, 8, 24, generator=generator, dtype=torch.float64)
    labels: Any = [
        {"class_labels": torch.arange(row % 4) % 3, "boxes": torch.rand(row % 4, 4, generator=generator).double()}
        for row in range(24)
    ]
    return rows(pixel_values=pixels, pixel_mask=torch.ones(24, 8, 24, dtype=torch.long), labels=labels)


def all_targets(batch: Batch) -> int:
    return int((batch["labels"] != -100).sum())


def next_tokens(batch: Batch) -> int:
    starts = batch.get("position_ids", torch.arange(9).expand_as(batch["labels"])) == 0
    return int((batch["labels"].masked_fill(starts, -100)[:, 1:] != -100).sum())


# A model's class, its config, its data, and how it counts targets.
CASES: dict[str, tuple[type, Callable[[], Any], Callable[[], Rows], Callable[[Batch], int]]] = {
    "encoder": (models.QkvEncoderForMaskedLM, lambda: tiny.encoder("bert", **NO_DROPOUT), text, all_targets),
    "decoder": (models.QkvDecoderForCausalLM, lambda: tiny.decoder("gpt2", **NO_DROPOUT), text, next_tokens),
    "packed": (models.QkvDecoderForCausalLM, lambda: tiny.decoder("llama"), packed, next_tokens),
    "encoder-decoder": (
        models.QkvEncoderDecoderForConditionalGeneration,
        lambda: tiny.encoder_decoder("transformer", **NO_DROPOUT), pairs, all_targets,
    ),
    "vit": (
        models.QkvImageEncoderForImageClassification,
        lambda: tiny.image_encoder("vit", drop_path_rate=0.0), pictures, all_targets,
    ),
    "alibi": (models.QkvDecoderForCausalLM, lambda: tiny.decoder("bloom"), text, next_tokens),
    "t5": (models.QkvEncoderDecoderForConditionalGeneration, lambda: tiny.encoder_decoder("t5"), pairs, all_targets),
    "normed heads": (models.QkvDecoderForCausalLM, lambda: tiny.decoder("neox"), text, next_tokens),
    "recurrent": (models.QkvRecurrentForConditionalGeneration, lambda: tiny.recurrent(embedding_dropout=0.0, hidden_dropout=0.0), pairs, all_targets),
    "ctc": (models.QkvAudioEncoderForCTC, lambda: tiny.audio_encoder(apply_spec_augment=False, **NO_DROPOUT), sound, all_targets),
    "speech": (models.QkvSpeechEncoderDecoderForSpeechSeq2Seq, lambda: tiny.speech_encoder_decoder(**NO_DROPOUT), sound, all_targets),
    "pairs": (
        models.QkvDualEncoderModel, lambda: tiny.dual_encoder(**NO_DROPOUT), captions, lambda batch: len(batch["input_ids"]),
    ),
    "scenes": (
        models.QkvDetectionForObjectDetection, lambda: tiny.detector(auxiliary_loss=True, **NO_DROPOUT), scenes, partial(ObjectDetection.count, None),
    ),
    "dropout": (models.QkvDecoderForCausalLM, lambda: tiny.decoder("gpt2"), text, next_tokens),
}  # fmt: skip


@contextmanager
def fresh_state() -> Iterator[None]:
    """Accelerate keeps its state in the process, one for all Accelerators."""
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
    """The task of a case, which leaves what a model writes in evaluation."""
    kind, _, examples, count = CASES[name]

    def collate(records: Any, places: Any) -> Batch:
        objects = [record["labels"] for record in records] if kind is models.QkvDetectionForObjectDetection else None
        batch = stack([{key: value for key, value in record.items() if torch.is_tensor(value)} for record in records])
        batch = {key: value.to(dtype) if value.is_floating_point() else value for key, value in batch.items()}
        return batch if objects is None else {**batch, "labels": objects}

    def write(model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        given = {name: batch[name] for name in ("input_ids", "attention_mask")}
        # Processes that share weights need each other to the end of the longest text.
        state: Any = AcceleratorState()
        longest = 4 + 2 * data_parallel(state)[0]
        written = model.generate(**given, max_new_tokens=longest, eos_token_id=None, do_sample=False)
        return [(str(text), "") for text in written[:, :5].tolist()]

    def reduce(sums: dict[str, float], found: Any) -> dict[str, float]:
        answers.extend(found)
        return Task.reduce(None, sums, found)

    if kind is models.QkvDualEncoderModel:
        return contest(examples(), count, collate, reduce)
    data = examples()
    writes = {"answer": write} if kind is models.QkvEncoderDecoderForConditionalGeneration else {}
    score = (
        {"score": lambda outputs, batch: {"loss": outputs.loss * len(batch["labels"])}}
        if kind is models.QkvDetectionForObjectDetection
        else {}
    )
    return task_of(data, {"test": data}, count=count, collate=collate, reduce=reduce, **writes, **score)


def contest(data: Rows, count: Any, stacked: Any, reduce: Any) -> Task:
    """Pairs that compete in training with those of all processes, and in evaluation with those of their batch."""

    def collate(records: Any, places: Any) -> Batch:
        return stacked(records, places) | ({} if places is None else {"return_loss": torch.tensor(True)})

    score = {"score": lambda outputs, batch: {"loss": batch_loss(outputs)}}
    task = task_of(data, {"test": data}, count=count, collate=collate, reduce=reduce, **score)
    task.in_batch_negatives = True
    return task


def curve(name: str, dtype: str, steps: int, halt: int = 0, **fields: Any) -> tuple[Curve, PreTrainedModel]:
    """What a training in this process's share of the world comes to: what it logs, and its model.

    It is halted after so many steps, and another goes on from its state.
    """
    kind, config, _, _ = CASES[name]

    def build() -> PreTrainedModel:
        torch.manual_seed(0)
        return kind(config()).to(getattr(torch, dtype))

    answers: list[Answer] = []
    task = taught(name, getattr(torch, dtype), answers)
    start = partial(begin, changed(RECIPE, max_steps=steps, **fields), build, task)
    loop = start()
    taken = list(islice(loop.steps(), halt))
    loop = resumed(loop, start) if halt else loop
    taken += loop.steps()
    found = {
        "loss": [step.loss.item() for step in taken],
        "norm": [step.grad_norm.item() for step in taken],
        "tokens": [int(step.tokens) for step in taken],
        "evaluation": [loop.evaluate(task.splits["test"])["loss"]],
        "written": sorted(text for text, _ in answers),
        # What every process has a copy of must stay the same on all.
        "copies": [value.double().sum().item() for value in loop.model.parameters() if not isinstance(value, DTensor)],
    }
    loop.finish()
    return found, full_model(loop.accelerator, loop.model, kind)


def launched(folder: Path, stage: int) -> None:
    """Have DeepSpeed asked for, as `accelerate launch` does."""
    config = folder / f"zero{stage}-{os.environ['RANK']}.json"
    config.write_text(json.dumps({"zero_optimization": {"stage": stage, **SMALL}, "gradient_accumulation_steps": 1}))
    os.environ.update(ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_DEEPSPEED_CONFIG_FILE=str(config))


def own_means(accelerator: Any, values: Tensor) -> Tensor:
    """The usual mistake: each process divides by its own targets."""
    return values * data_parallel(accelerator)[1]


def main(place: str, trainings: str, steps: str) -> None:
    """Train (case, engine, dtype) one after the other; the main process saves the models."""
    folder = Path(place)
    for name, way, dtype in json.loads(trainings):
        with fresh_state():
            if way.startswith("zero"):
                launched(folder, stage=int(way[-1]))
            found, model = curve(name, dtype, int(steps), **ENGINES[way])
        own = folder / name / way / dtype
        if os.environ["RANK"] == "0":
            model.save_pretrained(own)
        else:
            own.mkdir(parents=True, exist_ok=True)
        (own / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
    loop_module.reduce_sum = own_means
    with fresh_state():
        mistaken, _ = curve("decoder", "float64", int(steps), strategy="ddp")
    (folder / f"mistaken-{os.environ['RANK']}.json").write_text(json.dumps(mistaken))
