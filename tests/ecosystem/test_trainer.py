"""A step is a step however it is split: over micro-batches, processes, padding or packing, under Trainer."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import DataCollatorWithFlattening, PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

import gradient_worker as worker
from gradient_worker import ROUNDS, ROWS, SHARED, TASKS, Gradients
from processes import run_together
from sampling import sampled

pytestmark = pytest.mark.upstream

each_round = pytest.mark.parametrize(("name", "smoothing"), sampled(ROUNDS, 5))
EXACT = {"rtol": 0, "atol": 1e-10}


def assert_same_gradients(actual: Gradients, expected: Gradients) -> None:
    assert actual.keys() == expected.keys()
    assert max(value.abs().max() for value in expected.values()) > 0.1
    for name, value in expected.items():
        assert_close(actual[name], value, **EXACT, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture(scope="module")
def references() -> dict[tuple[str, float], Gradients]:
    contests = {(name, 0.0): worker.contest(task, slice(ROWS)) for name, task in worker.CONTESTS.items()}
    scenes = {(name, 0.0): worker.one_batch(task, 0.0) for name, task in worker.SCENES.items()}
    return (
        {(name, smoothing): worker.one_batch(TASKS[name], smoothing) for name, smoothing in ROUNDS} | contests | scenes
    )


def furthest(one: Gradients, other: Gradients) -> float:
    return float(torch.stack([(value - other[name]).abs().max() for name, value in one.items()]).max())


@pytest.mark.parametrize("name", worker.MAIN)
def test_wrong_means_and_smoothing_show(name: str, references: dict[tuple[str, float], Gradients]) -> None:
    assert furthest(references[name, 0.1], references[name, 0.0]) > 1e-2
    # The usual mistake: each micro-batch by its own mean.
    model, examples = TASKS[name].model().train(), TASKS[name].examples()
    for at in range(0, ROWS, 2):
        (model(**worker.pad(examples[at : at + 2])).loss / 4).backward()
    distance = furthest({key: value.grad for key, value in model.named_parameters()}, references[name, 0.0])
    assert (distance > 1e-2) == (name != "classes")  # one target in every row, whatever its length


@each_round
def test_accumulation_under_trainer_is_one_big_batch(name: str, smoothing: float, references: dict) -> None:
    actual = worker.trainer_step(TASKS[name], smoothing, batch_size=2, accumulate=4)
    assert_same_gradients(actual, references[name, smoothing])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_size", [2, ROWS])
def test_trainer_divides_by_the_targets_of_either_padding(side: str, batch_size: int, references: dict) -> None:
    # Nothing predicts the first token of a row, and Trainer counts it where padding stands before it.
    def collate(rows: list, first: int | None = -100) -> dict[str, Tensor]:
        batch = worker.pad([{**row, "labels": [first or row["labels"][0], *row["labels"][1:]]} for row in rows])
        by = (batch["attention_mask"] == 0).sum(1) * (side == "left")
        return {name: torch.stack(list(map(torch.roll, own, by.tolist()))) for name, own in batch.items()}

    split, task = {"batch_size": batch_size, "accumulate": ROWS // batch_size}, TASKS["clm"]
    assert_same_gradients(worker.trainer_step(task, 0.0, **split, collate=collate), references["clm", 0.0])
    labelled = worker.trainer_step(task, 0.0, **split, collate=partial(collate, first=None))
    examples = task.examples()
    batches = [collate(examples[at : at + batch_size], None)["labels"] for at in range(0, ROWS, batch_size)]
    counted = sum(int((labels[:, 1:] != -100).sum()) for labels in batches)
    targets = sum(sum(label != -100 for label in row["labels"][1:]) for row in examples)
    assert (counted > targets) == (side == "left")
    assert_same_gradients({name: own * counted / targets for name, own in labelled.items()}, references["clm", 0.0])


# Trainer counts nothing but `labels`: of an answer's positions it takes the mean over micro-batches.
@pytest.mark.parametrize("name", sampled([name for name, task in TASKS.items() if task.counted == "labels"], 2))
def test_a_short_last_batch_under_trainer_weighs_what_it_holds(name: str) -> None:
    actual = worker.trainer_step(TASKS[name], 0.0, batch_size=3, accumulate=3, rows=7)
    assert_same_gradients(actual, worker.one_batch(TASKS[name], 0.0, rows=7))


def two_processes(path: Path, start: int, every: int) -> dict[tuple[str, float, str], Gradients]:
    """Run every n-th of the shared tasks in two gloo processes."""
    run_together("gradient_worker", [path, start, every], path.parent, ACCELERATE_USE_CPU="true")
    return torch.load(path)


@pytest.mark.parametrize("start", sampled(range(5), 5))
def test_two_processes_are_one_big_batch(
    start: int, references: dict[tuple[str, float], Gradients], tmp_path: Path
) -> None:
    # Many in one test, so that few launches are paid for.
    results = two_processes(tmp_path / "gradients.pt", start, 5)
    assert list(results) == SHARED[start::5]
    distances = {shared: furthest(found, references[shared[:2]]) for shared, found in results.items()}
    assert {shared: distance for shared, distance in distances.items() if not distance <= 1e-10} == {}


def test_pairs_in_chunks_are_one_big_batch(references: dict) -> None:
    actual = worker.trainer_step(worker.CHUNKED, 0.0, batch_size=ROWS, accumulate=1, collate=worker.paired)
    assert furthest(actual, references["pairs", 0.0]) <= 1e-10
    assert furthest(references["pairs in chunks", 0.0], references["pairs", 0.0]) <= 1e-10


# Trainer's own options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlm", "clm", "clm-untied", "seq2seq", "classes", "tags"])
def test_trainers_own_label_smoothing_is_that_of_the_config(name: str, references: dict) -> None:
    # Trainer shifts the labels of the class names it knows, and ours are registered among them.
    task = TASKS[name]
    prepare = task.model().prepare_decoder_input_ids_from_labels if name == "seq2seq" else None

    def collate(rows: list) -> dict[str, Tensor]:
        batch = worker.pad(rows)
        return batch if prepare is None else {**batch, "decoder_input_ids": prepare(batch["labels"])}

    actual = worker.trainer_step(task, 0.0, batch_size=2, accumulate=4, label_smoothing_factor=0.1, collate=collate)
    for key, value in references[name, 0.1].items():
        assert_close(actual[key], value, rtol=0, atol=1e-6)  # Trainer sums its smoothing in single precision


@pytest.mark.parametrize("name", sampled(TASKS, 3))
def test_evaluation_reports_the_loss(name: str) -> None:
    model = TASKS[name].model().eval()
    examples = TASKS[name].examples()
    with torch.no_grad():
        losses = [model(**worker.double(worker.pad(examples[at : at + 4]))).loss for at in (0, 4)]
    trainer = worker.make_trainer(model, examples, 4, 1, per_device_eval_batch_size=4)
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(float(sum(losses) / 2), abs=1e-6)
    predictions = trainer.predict(examples)
    assert predictions.metrics["test_loss"] == pytest.approx(metrics["eval_loss"])
    scores = predictions.predictions
    assert len(scores[0] if isinstance(scores, tuple) else scores) == ROWS
    # The states of all pairs of a data set would fill the memory.
    assert not (isinstance(scores, tuple) and name in ("contacts", "distances"))


@pytest.mark.parametrize("name", ["seq2seq", "speech"])
def test_sequence_to_sequence_trainer_generates_predictions(name: str, tmp_path: Path) -> None:
    model, examples = TASKS[name].model().eval(), TASKS[name].examples()
    quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
    settings = Seq2SeqTrainingArguments(str(tmp_path), **quiet, predict_with_generate=True)
    options = {"max_new_tokens": 6, "num_beams": 2}
    predictions = Seq2SeqTrainer(model, settings, data_collator=worker.pad).predict(examples, **options).predictions
    batch = {key: value for key, value in worker.pad(examples).items() if key != "labels"}
    expected = model.generate(**batch, **options)
    assert (predictions[:, : expected.shape[1]] == expected.numpy()).all()


# Collators ------------------------------------------------------------------------------------------------------------


def learn(model: PreTrainedModel, examples: list, collate: Any, batch_size: int) -> Gradients:
    """One step of Trainer over all examples in micro-batches."""
    start = worker.start_of(model)
    worker.make_trainer(model, examples, batch_size, ROWS // batch_size, collate=collate).train()
    return worker.moved(model, start)


PACKED = [
    *itertools.product(["clm", "clm-untied"], ["positions", "boundaries", "both"]),
    *itertools.product(["tags", "mlm"], ["positions", "boundaries"]),
]


@pytest.mark.parametrize(("name", "by"), sampled(PACKED, 3))
def test_packed_documents_are_learned_as_if_separate(name: str, by: str) -> None:
    flatten = DataCollatorWithFlattening(return_flash_attn_kwargs=by != "positions")
    # The collator blanks the first label of a document, which for a causal model is nobody's target.
    examples = [{**row, "labels": [-100, *row["labels"][1:]]} for row in TASKS[name].examples()]
    separate = learn(TASKS[name].model(), examples, worker.pad, ROWS)

    def collate(rows: list) -> dict[str, Any]:
        batch = flatten([dict(row) for row in rows])
        assert batch["input_ids"].shape[0] == 1
        if by == "boundaries":  # nothing but these says where documents begin
            del batch["position_ids"]
        return {key: value for key, value in batch.items() if isinstance(value, Tensor)}

    assert_same_gradients(learn(TASKS[name].model(), examples, collate, 4), separate)
