"""A step is a step however it is split: over micro-batches, processes, padding or packing, under Trainer."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from torch.testing import assert_close
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    default_data_collator,
)

import gradient_worker as worker
import tiny
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


@pytest.mark.parametrize("name", sampled(["classes", "seq2seq", "images"], 3))
def test_training_resumes_and_saves_what_it_learned(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    through = task.model()
    worker.make_trainer(through, task.examples(), 4, 1).train()

    stopped = task.model()
    options = {"output_dir": str(tmp_path), "save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    worker.make_trainer(stopped, task.examples(), 4, 1, **options).train()
    resumed = task.model()
    trainer = worker.make_trainer(resumed, task.examples(), 4, 1, **options)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert trainer.state.global_step == 2
    for key, value in through.state_dict().items():
        assert_close(resumed.state_dict()[key], value, **EXACT)
    trainer.save_model(str(tmp_path / "final"))
    loaded = type(resumed).from_pretrained(tmp_path / "final")
    assert loaded.dtype == torch.float64
    for key, value in resumed.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key


# Pairs compete, so that they do not learn one by one: theirs are the tests above.
TRAINED = [case for case in tiny.HEADS if case in tiny.LOSSES and "return_loss" not in case.inputs()]


@pytest.mark.parametrize("case", sampled(TRAINED, 4), ids=lambda case: case.name)
def test_every_head_trains(case: tiny.Case) -> None:
    model, inputs = case.build().double(), case.inputs()
    examples = [{name: value[row] for name, value in inputs.items()} for row in range(tiny.BATCH)]
    start = worker.start_of(model)
    collate = worker.pad if "pixel_mask" in inputs else default_data_collator  # objects make no tensor
    trainer = worker.make_trainer(model, examples, 1, tiny.BATCH, collate=collate)
    assert trainer.train().training_loss > 0
    steps = worker.moved(model, start)
    assert all(value.isfinite().all() for value in steps.values())
    assert next(iter(steps.values())).any()


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


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    words = {"[UNK]": 0, "[PAD]": tiny.PAD, "[CLS]": tiny.START, "[SEP]": tiny.END, "[MASK]": 4}
    words |= {f"w{index}": index for index in range(5, tiny.VOCABULARY)}
    whole_words = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    whole_words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=whole_words, unk_token="[UNK]", eos_token="[SEP]", **special)


def spoken(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    sentences = [" ".join(f"w{(7 * row + 3 * at) % 50 + 5}" for at in range(n)) for row, n in enumerate(worker.LENGTHS)]
    return [{"input_ids": tokenizer(sentence)["input_ids"]} for sentence in sentences]


def learn(model: PreTrainedModel, examples: list, collate: Any, batch_size: int) -> Gradients:
    """One step of Trainer over all examples in micro-batches."""
    start = worker.start_of(model)
    worker.make_trainer(model, examples, batch_size, ROWS // batch_size, collate=collate).train()
    return worker.moved(model, start)


def test_collators(tokenizer: PreTrainedTokenizerFast) -> None:
    """Batches of transformers' collators: a step in micro-batches is one big batch."""
    texts, model = spoken(tokenizer), TASKS["seq2seq"].model()
    mask = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4, seed=7)
    # It masks at random: fixed here, so that both splits see the same.
    fixed = [{key: value[0] for key, value in mask([text]).items()} for text in texts]
    masked = [{key: row[key].tolist() for key in ("input_ids", "labels")} for row in fixed]
    pairs = [{**one, "labels": other["input_ids"]} for one, other in zip(texts, reversed(texts), strict=True)]
    translate = DataCollatorForSeq2Seq(tokenizer, model=model)
    batch = translate([dict(pair) for pair in pairs])
    labels = batch["labels"][:, :-1]
    assert batch["decoder_input_ids"][:, 0].eq(tiny.START).all()
    assert torch.equal(batch["decoder_input_ids"][:, 1:], labels.where(labels != -100, tiny.PAD))
    continued = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    for name, rows, collate in (("mlm", masked, worker.pad), ("clm", texts, continued), ("seq2seq", pairs, translate)):
        whole, split = (learn(TASKS[name].model(), [dict(row) for row in rows], collate, size) for size in (ROWS, 2))
        assert_same_gradients(split, whole)
    learn(TASKS["mlm"].model(), texts, mask, 2)  # and by itself, attention mask and all


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
