"""Pictures and captions: as the processor makes them, judged among 32 captions, and never in parts."""

from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

import own_runs
from qkv.scripts.lab.stock_model import build_stock
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.recipes.loading import changed
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.contrastive import CANDIDATES, batch_loss, negatives
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.loop import check_task
from qkv.scripts.training.run import build

TINY = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.vision_config.num_hidden_layers=1",
        "model.num_attention_heads=2", "text.made=40", "holdout=0.05", "max_steps=2", "warmup_steps=1",
        "batch_size=8"]  # fmt: skip
RECIPE = recipe.load("shapes-captions", TINY)


@pytest.fixture(scope="module")
def task() -> Task:
    return data.load(RECIPE)


def test_batches_are_what_the_processor_makes(task: Task) -> None:
    records = task.train.__getitems__([0, 1, 2])
    batch = task.collate(records, [0, 1, 2])
    pictures = [Image.fromarray(record["levels"].numpy()) for record in records]
    texts = [task.processor.tokenizer.decode(row, skip_special_tokens=True) for row in batch["input_ids"]]
    expected = task.processor(text=texts, images=pictures, padding=True, return_tensors="pt")
    assert (batch["pixel_values"] - expected["pixel_values"]).abs().max() < 1e-5
    width = expected["input_ids"].shape[1]
    assert torch.equal(batch["input_ids"][:, :width], expected["input_ids"]) and task.count(batch) == 3
    assert batch["return_loss"] and "return_loss" not in task.collate(records, None)
    assert all(len(text.split()) == 3 for text in texts)


def test_splits_hold_captions_of_the_training_and_others(task: Task) -> None:
    assert task.sizes() == {"train": 38, "validation": 2, "test": 800}
    captions = task.splits["test"].columns["caption"]
    assert int(captions[:400].max()) < 24 <= int(captions[400:].min()) and int(task.train.columns["caption"].max()) < 24


def test_a_caption_is_chosen_among_32_different_ones() -> None:
    assert len({5, *negatives(5, 48, 0)}) == CANDIDATES == 32 and negatives(5, 48, 0) != negatives(5, 48, 1)
    assert set(negatives(5, 32, 0)) == set(range(32)) - {5}


def test_judged_is_the_nearest_caption(task: Task) -> None:
    """A model whose pictures lie at one caption each."""
    texts = torch.eye(32)
    model = SimpleNamespace(
        device="cpu", get_text_features=lambda **rows: SimpleNamespace(pooler_output=3 * texts[rows["input_ids"]])
    )
    outputs = SimpleNamespace(image_embeds=texts[[3, 3, 30]])
    batch = {"_caption": torch.tensor([3, 4, 30]), "_place": torch.arange(3)}
    retrieval = copy(task)
    retrieval.tokens, retrieval.seen = {"input_ids": torch.arange(32)}, 24
    answers = retrieval.answer(model, outputs, batch)
    assert answers == [(3, 3), (3, 4), (30, 30)]
    found = retrieval.reduce({"loss": 6.0, "targets": 3.0}, answers)
    assert found == {"loss": 2.0, "retrieval_seen": 0.5, "retrieval_unseen": 1.0}
    assert "retrieval_unseen" not in retrieval.reduce({"loss": 6.0, "targets": 3.0}, answers[:2])


def test_equal_captions_of_a_table_are_one_and_a_test_may_have_others(tmp_path: Path) -> None:
    own_runs.data("captions", tmp_path, 22)
    rows = [{"image": f"files/{number}.png", "text": f"a {'ab'[number % 2]}"} for number in range(22)]
    rows[3]["image"], rows[20]["text"] = "files/none.png", "a new one"
    own_runs.write_rows(tmp_path / "train.jsonl", rows[:20])
    own_runs.write_rows(tmp_path / "test.jsonl", rows[20:])
    (tmp_path / "captions.jsonl").unlink()
    size = ["model.vision_config.image_size=16", "model.vision_config.patch_size=8", "text.vocab_size=600"]
    words = [*TINY, *size, f"data={tmp_path}", "bad_records=0.1", "holdout=0.2"]
    task = data.load(recipe.load("shapes-captions", words))
    assert task.sizes() == {"train": 15, "validation": 4, "test": 2} and len(task.captions) == 3
    assert {task.captions[number] for number in range(task.seen)} == {"a a", "a b"}
    batch = task.collate(list(task.splits["test"]), None)
    assert [task.captions[number] for number in batch["_caption"]] == ["a new one", "a b"]
    assert batch["_place"].tolist() == [0, 1] and batch["pixel_values"].shape == (2, 3, 16, 16)


@pytest.mark.parametrize("build", [build, build_stock])
def test_both_models_compete_alike(build: Any, task: Task) -> None:
    """The loss that a step is taken by is that of the outputs, summed over pairs and divided by their number."""
    model = build(RECIPE, task).eval()
    batch = task.collate(task.train.__getitems__(range(8)), range(8))
    given = {name: value for name, value in batch.items() if name[0] != "_"}
    outputs = model(**given, num_items_in_batch=4)
    assert float(outputs.loss) == pytest.approx(float(batch_loss(outputs)) / 4, rel=1e-5)
    assert (model.config.text_config.vocab_size, model.config.text_config.eos_token_id) == (
        len(task.processor.tokenizer), task.processor.tokenizer.eos_token_id,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said"), [({"accumulate": 2}, "accumulate=2"), ({"tensor_parallel": 2}, "tensor_parallel")]
)
def test_pairs_are_never_taken_in_parts(fields: dict[str, int], said: str, task: Task) -> None:
    check_task(task, RECIPE)
    independent = copy(task)
    independent.in_batch_negatives = False
    check_task(independent, changed(RECIPE, **fields))
    with pytest.raises(ValueError, match=said):
        check_task(task, changed(RECIPE, **fields))
