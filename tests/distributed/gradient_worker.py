"""One optimizer step of each task, however it is split: the gradients must be those of one big batch.

Tests import the tasks from here; `main` is that of one of several processes that share the step (its rank and the
others' come from the environment, as launchers set them) and writes what came out to the file it is given, of every
n-th of what is shared.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

import qkv.modeling as models
import tiny

SMOOTHING = (0.0, 0.1)
ROWS = 8
# Very unequal, so that a mean of means is far from the mean.
LENGTHS = (2, 11, 3, 17, 1, 5, 2, 13)
NO_DROPOUT = {"embedding_dropout": 0.0, "attention_dropout": 0.0, "residual_dropout": 0.0}
# The chains of models of pairs: shorter, and as long in either half, as Trainer joins maps of one size alone.
CHAINS = (2, 7, 3, 9, 1, 5, 9, 4)
FILLERS = {"labels": -100, "msa_attention_mask": 0}
Example = dict[str, Any]
Gradients = dict[str, Tensor]


def ids(length: int, seed: int) -> list[int]:
    return torch.randint(4, tiny.VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def stack(values: list[Tensor], filler: int) -> Tensor:
    """Stack tensors, filled up in every dimension to the longest."""
    shape = torch.tensor([value.shape for value in values]).amax(0) if values[0].ndim else ()
    filled = values[0].new_full((len(values), *map(int, shape)), filler)
    for row, value in zip(filled, values, strict=True):
        row[tuple(map(slice, value.shape))] = value
    return filled


def pad(examples: list[Example]) -> dict[str, Tensor]:
    """Pad on the right to the longest row of this batch; labels with -100, what has one size by stacking."""
    batch: dict[str, Any] = {}
    for name in examples[0]:
        values = [example[name] for example in examples]
        if isinstance(values[0], dict):  # the objects of an image
            batch[name] = values
            continue
        if name == "input_features":
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
            lengths = torch.tensor([len(value) for value in values])
            batch["attention_mask"] = (torch.arange(lengths.max()) < lengths[:, None]).long()
            continue
        if not isinstance(values[0], list) or name == "scores":
            stacked = stack([torch.as_tensor(value) for value in values], FILLERS.get(name, tiny.PAD))
            batch["labels" if name == "scores" else name] = stacked
            continue
        longest, filler = max(map(len, values)), FILLERS.get(name, tiny.PAD)
        batch[name] = torch.tensor([value + [filler] * (longest - len(value)) for value in values])
        if name == "input_ids" and "attention_mask" not in examples[0]:
            batch["attention_mask"] = torch.tensor([[1] * len(v) + [0] * (longest - len(v)) for v in values])
    return batch


def masked_words() -> list[Example]:
    """A few targets in some rows, many in others; each row has at least one."""
    rows = []
    for row, length in enumerate(LENGTHS):
        targets = [token if index % (row + 1) == 0 else -100 for index, token in enumerate(ids(length, 50 + row))]
        rows.append({"input_ids": ids(length, row), "labels": targets})
    return rows


def next_words() -> list[Example]:
    rows = [{"input_ids": ids(length + 1, row)} for row, length in enumerate(LENGTHS)]
    # A prompt of which nothing is to be learned.
    return [{**row, "labels": [-100] * (i % 3) + row["input_ids"][i % 3 :]} for i, row in enumerate(rows)]


def translations() -> list[Example]:
    return [
        {"input_ids": ids(length, row), "labels": ids(LENGTHS[-1 - row], 50 + row)}
        for row, length in enumerate(LENGTHS)
    ]


def texts(name: str, label: Callable[[int], Any]) -> list[Example]:
    return [{"input_ids": ids(length, row), name: label(row)} for row, length in enumerate(LENGTHS)]


def classes() -> list[Example]:
    return texts("labels", lambda row: row % 3)


def ratings() -> list[Example]:
    return texts("scores", lambda row: [float(row & 1), float(row & 2 > 0), 1.0])


def numbers() -> list[Example]:
    return texts("labels", lambda row: row / 3)


def answers() -> list[Example]:
    """As long as the longest from the start: like BERT's, this loss also chooses among the padding."""
    rows = []
    for row, length in enumerate(LENGTHS):
        padding = max(LENGTHS) - length
        tokens = {"input_ids": ids(length, row) + [tiny.PAD] * padding, "attention_mask": [1] * length + [0] * padding}
        rows.append({**tokens, "start_positions": 0, "end_positions": length - 1})
    return rows


def tagged() -> list[Example]:
    return [
        {"input_ids": ids(length, row), "labels": [-100 if i % 3 == row % 3 and i else i % 3 for i in range(length)]}
        for row, length in enumerate(LENGTHS)
    ]


def spoken(words: Callable[[int], int]) -> list[Example]:
    """Sound of very unequal length, and as many words in it as are asked for."""
    generator = torch.Generator().manual_seed(1)
    sound = [torch.randn(9 + 4 * length, 6, generator=generator) for length in LENGTHS]
    return [{"input_features": row, "labels": ids(words(index), 50 + index)} for index, row in enumerate(sound)]


def syllables() -> list[Example]:
    return spoken(lambda row: 1 + row % 3)


def sentences() -> list[Example]:
    return spoken(lambda row: LENGTHS[-1 - row])


def pictures() -> list[Example]:
    generator = torch.Generator().manual_seed(1)
    return [{"pixel_values": torch.randn(3, 12, 16, generator=generator), "labels": row % 3} for row in range(ROWS)]


def aligned(row: int, length: int) -> Example:
    """One to three sequences that are aligned with a chain."""
    count = 1 + row % 3
    sequences = torch.tensor([ids(length, 50 + 9 * row + at) for at in range(count)])
    return {"msa_ids": sequences, "msa_attention_mask": torch.ones(count, dtype=torch.long)}


def masked_alignments() -> list[Example]:
    """Chains and the sequences beside them, with labels in all of them."""
    rows = []
    for row, length in enumerate(CHAINS):
        chain, sequences = ids(length, row), aligned(row, length)
        whole = torch.cat((torch.tensor([chain]), sequences["msa_ids"]))
        due = torch.arange(whole.numel()).view_as(whole) % (row + 2) == 0
        rows.append({"input_ids": chain, **sequences, "labels": whole.where(due, -100)})
    return rows


def chains(kinds: int, further: Callable[[int, int], Example] = lambda row, length: {}) -> list[Example]:
    """Chains with a label for some pairs."""
    rows = []
    for row, length in enumerate(CHAINS):
        places = torch.arange(length)
        labels = (places[:, None] + places + row) % kinds
        labels = labels.where((labels + places) % (row + 2) < 2, -100)
        rows.append({"input_ids": ids(length, row), "labels": labels, **further(row, length)})
    return rows


def peptides() -> list[Example]:
    """Chains with positions of backbones, of which some atoms are unknown."""
    generator, rows = torch.Generator().manual_seed(3), []
    for row, length in enumerate(CHAINS):
        places = 4 * torch.randn(length, 4, 3, generator=generator)
        places[:: row + 2, 3] = -100
        rows.append({"input_ids": [token % 20 for token in ids(length, row)], "labels": places})
    return rows


def contacts() -> list[Example]:
    return chains(2)


def distances() -> list[Example]:
    return chains(tiny.BINS, aligned)


def scenes() -> list[Example]:
    """Images with very different numbers of objects, none in some."""
    generator, examples = torch.Generator().manual_seed(2), []
    for row, count in enumerate((3, 0, 5, 1, 0, 4, 2, 1)):
        found = {"class_labels": torch.arange(count) % 3, "boxes": torch.rand(count, 4, generator=generator) / 2 + 0.1}
        pixels = torch.randn(3, 8, 24, generator=torch.Generator().manual_seed(row))
        examples.append({"pixel_values": pixels, "labels": found})
    return examples


def targets(batch: dict[str, Any]) -> Tensor:
    """Count what a loss is divided by: the targets of a batch, or its objects and its images."""
    labels = batch["labels"] if "labels" in batch else batch["start_positions"]
    if isinstance(labels, list):
        return torch.tensor([sum(len(found["boxes"]) for found in labels), len(labels)])
    return (labels != -100).sum()


@dataclass(frozen=True)
class Task:
    """A model, eight examples, and which of their tensors counts the targets of a step."""

    build: Callable[..., PreTrainedModel]
    examples: Callable[[], list[Example]]
    counted: str = "labels"
    smoothed: bool = True

    def model(self, smoothing: float = 0.0) -> PreTrainedModel:
        torch.manual_seed(0)
        return tiny.jitter(self.build(**({"label_smoothing": smoothing} if smoothing else {}))).double()


def recurrent(kind: str, **fields: Any) -> Any:
    return tiny.recurrent(kind, **{"initializer_range": 0.5, **fields})


def still_images(kind: str, **fields: Any) -> Any:
    return tiny.image_encoder(kind, drop_path_rate=0.0, **fields)


def task(head: str, config: Any, kind: str, examples: Any, **options: Any) -> Task:
    model_class = getattr(models, f"Qkv{head}")
    fields = {name: 0.0 for name in NO_DROPOUT if name in config(kind).known_fields()} | options.pop("fields", {})
    return Task(lambda **more: model_class(config(kind, **{**fields, **more})), examples, **options)


unsmoothed = partial(task, smoothed=False)
UNDROPPED = {"num_recycles": 1, "pair_dropout": 0.0}
TASKS = {
    "mlm": task("EncoderForMaskedLM", tiny.encoder, "bert", masked_words),
    "clm": task("DecoderForCausalLM", tiny.decoder, "gpt2", next_words),
    "clm-untied": task("DecoderForCausalLM", tiny.decoder, "llama", next_words),
    "seq2seq": task("EncoderDecoderForConditionalGeneration", tiny.encoder_decoder, "bart", translations),
    # Without dropout as it stands, and with no layer whose dropouts NO_DROPOUT names.
    "recurrent": task("RecurrentForConditionalGeneration", recurrent, "luong", translations),
    "classes": task("EncoderForSequenceClassification", tiny.encoder, "bert", classes),
    "classes-decoder": task("DecoderForSequenceClassification", tiny.decoder, "gpt2", classes),
    "tags": task("EncoderForTokenClassification", tiny.encoder, "local", tagged),
    "images": task("ImageEncoderForImageClassification", still_images, "vit", pictures),
    "yes-or-no": unsmoothed("EncoderForSequenceClassification", tiny.encoder, "bert", ratings),
    "numbers": unsmoothed("EncoderForSequenceClassification", tiny.encoder, "bert", numbers, fields={"num_labels": 1}),
    "spans": unsmoothed("EncoderForQuestionAnswering", tiny.encoder, "bert", answers, counted="start_positions"),
    "spans-decoder": unsmoothed(
        "DecoderForQuestionAnswering", tiny.decoder, "mistral", answers, counted="start_positions"
    ),
    "ctc": unsmoothed(
        "AudioEncoderForCTC", tiny.audio_encoder, "speech", syllables, fields={"apply_spec_augment": False}
    ),
    "speech": unsmoothed("SpeechEncoderDecoderForSpeechSeq2Seq", tiny.speech_encoder_decoder, "speech", sentences),
    "contacts": unsmoothed(
        "PairForContactPrediction", tiny.pair, "esmfold", contacts, fields={"initializer_range": 0.3}
    ),
    "peptides": task("FoldingModel", tiny.folding, "recycled", peptides, fields=UNDROPPED | {"structure_dropout": 0.0}),
    "distances": task("PairForDistancePrediction", tiny.pair, "evoformer", distances, fields=UNDROPPED),
    "residues": task("PairForMaskedLM", tiny.pair, "evoformer", masked_alignments, fields=UNDROPPED),
    "residue classes": task("PairForTokenClassification", tiny.pair, "plain", tagged),
}


# Trainer counts no objects: processes may share a step, but parts of it add up in our loop alone (`scale_worker.py`).
SCENES = {"scenes": unsmoothed("DetectionForObjectDetection", tiny.detector, "detr", scenes)}


def captions() -> list[Example]:
    """Texts that end, each with an image."""
    images = [{"pixel_values": example["pixel_values"]} for example in pictures()]
    return [{"input_ids": [*ids(length, row), tiny.END], **images[row]} for row, length in enumerate(LENGTHS)]


def paired(examples: list[Example]) -> dict[str, Tensor]:
    return {**pad(examples), "return_loss": torch.tensor(True)}


# Pairs compete, so that a part of a batch is another task: only processes and chunks may split it.
PAIRS = task("DualEncoderModel", tiny.dual_encoder, "clip", captions)
CHUNKED = task("DualEncoderModel", tiny.dual_encoder, "clip", captions, fields={"embedding_chunk_size": 3})
SIGMOIDS = task("DualEncoderModel", tiny.dual_encoder, "clip", captions, fields={"logit_bias": True})
CONTESTS = {"pairs": PAIRS, "pairs in chunks": CHUNKED, "pairs by sigmoids": SIGMOIDS}
ROUNDS = [
    (name, smoothing) for name, task in TASKS.items() for smoothing in SMOOTHING if task.smoothed or not smoothing
]
# What several processes share: the four kinds of loss with and without smoothing, every other head without.
MAIN = ("mlm", "clm", "seq2seq", "classes")
SHARED = [(name, smoothing, "accumulated") for name, smoothing in ROUNDS if name in MAIN or not smoothing]
SHARED += [(name, 0.0, how) for name in CONTESTS for how in ("trainer", "uneven", "counted")]
SHARED += [(name, 0.0, "trainer") for name in SCENES]


def one_batch(task: Task, smoothing: float, rows: int = ROWS) -> Gradients:
    """The gradients everything else is measured by: all examples at once, plain torch."""
    model = task.model(smoothing).train()
    model(**double(pad(task.examples()[:rows]))).loss.backward()
    return {name: value.grad for name, value in model.named_parameters()}


def double(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
    return {**batch, **{name: value.double() if value.is_floating_point() else value for name, value in found.items()}}


def moved(model: PreTrainedModel, start: Gradients) -> Gradients:
    """After one step of plain descent at rate 1 the weights have moved by their gradients."""
    return {name: start[name] - value.detach() for name, value in model.named_parameters()}


def contest(task: Task, rows: slice, count: int | None = None) -> Gradients:
    """Gradients and value of the contrastive loss, of which this process has some of the pairs."""
    model = task.model().train()
    together = torch.distributed.is_initialized()
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if together else model
    loss = wrapped(**double(paired(task.examples()[rows])), num_items_in_batch=count).loss
    if count is not None and together:  # a part of the step's loss, of whose gradients the mean is taken
        loss = loss * torch.distributed.get_world_size()
    loss.backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    return gradients if count is not None else {**gradients, "loss": loss.detach()}


def start_of(model: PreTrainedModel) -> Gradients:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def trainer_step(
    task: Task, smoothing: float, *, batch_size: int, accumulate: int, rows: int = ROWS, **arguments: Any
) -> Gradients:
    """One optimizer step of transformers' Trainer."""
    model = task.model(smoothing)
    start = start_of(model)
    trainer = make_trainer(model, task.examples()[:rows], batch_size, accumulate, **arguments)
    trainer.train()
    assert trainer.state.global_step == 1
    return moved(model, start)


def make_trainer(
    model: PreTrainedModel, examples: list[Example], batch_size: int, accumulate: int, **arguments: Any
) -> Trainer:
    collate = arguments.pop("collate", pad)
    silent = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
    parts = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulate}
    plain = {"num_train_epochs": 1, "max_grad_norm": 0.0, "use_cpu": True, "remove_unused_columns": False}
    settings = TrainingArguments(**{"output_dir": tempfile.mkdtemp(), **silent, **parts, **plain, **arguments})
    descent = torch.optim.SGD(model.parameters(), lr=1.0)
    constant = torch.optim.lr_scheduler.LambdaLR(descent, lambda step: 1.0)
    data = {"train_dataset": examples, "eval_dataset": examples, "data_collator": lambda rows: double(collate(rows))}
    return Trainer(model, settings, optimizers=(descent, constant), **data)


def step(name: str, smoothing: float, how: str) -> Gradients:
    """One of several processes takes its part of the eight examples, in one micro-batch or in several."""
    if name in CONTESTS:
        own = slice(0, 5) if os.environ["RANK"] == "0" else slice(5, ROWS)
        if how == "trainer":
            return trainer_step(CONTESTS[name], smoothing, batch_size=4, accumulate=1, collate=paired)
        return contest(CONTESTS[name], own, ROWS if how == "counted" else None)
    parts = 2 if how == "accumulated" else 1
    return trainer_step({**TASKS, **SCENES}[name], smoothing, batch_size=4 // parts, accumulate=parts)


def main(path: str, start: str, every: str) -> None:
    results = {shared: step(*shared) for shared in SHARED[int(start) :: int(every)]}
    if os.environ["RANK"] == "0":
        torch.save(results, path)
    torch.distributed.destroy_process_group()
