"""Masked language modeling: hidden by place in training, the same every time in evaluation, in BERT's shares."""

import pytest
import torch

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.masked_lm import IGNORED, MaskedLM
from qkv.scripts.tasks.task import Task
from recipes import recipe_of

TEXTS = {"train": ["one two three four five six", "seven", "a b c d e f g h i j k l"], "test": ["one seven", "two b"]}


def recipe(**options: object) -> Recipe:
    return recipe_of(text={"tokenizer": "characters", "length": 16, "mask": 0.4, **options})


@pytest.fixture
def task() -> Task:
    return MaskedLM(recipe(), Corpus("c", "t", "s", TEXTS))


def test_texts_are_in_pieces_that_fit(task: Task) -> None:
    rows = task.train.columns["input_ids"]
    assert rows.shape[1] == 16 and task.train.lengths == [16, 15, 7, 16, 11]
    assert all(row[0] == 2 and row[length - 1] == 1 for row, length in zip(rows, task.train.lengths, strict=True))
    texts = [task.processor.decode(row, skip_special_tokens=True) for row in rows]
    assert "".join(texts) == "".join(TEXTS["train"])


def test_a_place_decides_what_is_hidden_and_neighbours_do_not(task: Task) -> None:
    records = task.train.__getitems__([0, 2, 0])
    one = task.collate(records, [5, 6, 7])
    again = task.collate(records[1:2], [6])
    length = again["input_ids"].shape[1]
    assert length == 7 and torch.equal(one["input_ids"][1, :length], again["input_ids"][0])
    assert torch.equal(one["labels"][1, :length], again["labels"][0])
    assert not torch.equal(one["labels"][0], one["labels"][2])
    assert one["attention_mask"].sum(1).tolist() == [16, 7, 16]


def test_evaluation_asks_for_the_same_tokens_each_time(task: Task) -> None:
    other = MaskedLM(recipe(), Corpus("c", "t", "s", TEXTS))
    split = task.splits["test"]
    for name, column in split.columns.items():
        assert torch.equal(column, other.splits["test"].columns[name])
    batch = task.collate(split.__getitems__([0, 1]), None)
    again = task.collate(split.__getitems__([1]), None)
    assert torch.equal(batch["labels"][1, : again["labels"].shape[1]], again["labels"][0])
    assert task.count(batch) == int((split.columns["labels"] != IGNORED).sum()) > 0


def test_shares_are_those_of_bert() -> None:
    letters = ["abcdefghijklmnopqrstuvwxyz"]
    task = MaskedLM(recipe(mask=0.15), Corpus("c", "t", "s", {"train": letters, "test": letters}))
    inputs = torch.randint(5, len(task.processor), (400, 64))
    found = task.mask(inputs, torch.rand(*inputs.shape, 3))
    asked = found["labels"] != IGNORED
    assert torch.equal(found["labels"][asked], inputs[asked])
    assert torch.equal(found["input_ids"][~asked], inputs[~asked])
    hidden = (found["input_ids"] == task.processor.mask_token_id)[asked].double().mean().item()
    same = (found["input_ids"] == inputs)[asked].double().mean().item()
    # A token drawn at random is the same by chance now and then, and never a special one.
    assert asked.double().mean().item() == pytest.approx(0.15, abs=0.01)
    assert hidden == pytest.approx(0.8 + 0.1 * 5 / 31, abs=0.02) and same == pytest.approx(0.1 + 0.1 / 31, abs=0.02)
    assert not torch.isin(found["input_ids"], torch.tensor([0, 1, 2, 3])).any()


def test_special_tokens_are_never_asked_for(task: Task) -> None:
    inputs = torch.tensor([[2, 7, 1, 0]])
    task.share = 0.99
    found = task.mask(inputs, torch.zeros(1, 4, 3))
    assert found["labels"].tolist() == [[IGNORED, 7, IGNORED, IGNORED]]


def test_metrics_are_over_hidden_tokens(task: Task) -> None:
    found = task.measure({"loss": 6.0, "targets": 3.0, "accuracy": 1.0}, [])
    assert found["accuracy"] == pytest.approx(1 / 3) and found["perplexity"] == pytest.approx(2.718281828**2)
    assert task.config["mask_token_id"] == task.processor.mask_token_id
