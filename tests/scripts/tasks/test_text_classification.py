"""Classes and numbers of texts: rows cut and padded, metrics of all answers, regressions in any unit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, pipeline

import qkv
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.recipes import loading
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import TextClassification, TextRegression
from qkv.scripts.training.run import train
from recipes import recipe_of

TEXTS = {"train": ["aaa b", "b", "aaaaaaaaaaaaaaaa", "bb b"], "test": ["aa", "bb"]}
LABELS = {"train": [0, 1, 0, 1], "test": [0, 1]}
RECIPE = recipe_of(text=dict(tokenizer="characters", length=8))


@pytest.fixture
def task() -> Task:
    return TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS, LABELS, ["A", "B"]))


def test_texts_are_framed_and_cut(task: Task) -> None:
    batch = task.collate(task.train.__getitems__([1, 3]), [0, 1])
    decoded = [task.processor.decode(row) for row in batch["input_ids"]]
    assert decoded == ["<s>b</s><pad><pad><pad>", "<s>bb b</s>"]
    assert batch["attention_mask"].sum(1).tolist() == [3, 6] and batch["labels"].tolist() == [1, 1]
    assert task.train.lengths == [7, 3, 8, 6] and task.labels == ["A", "B"]


def test_metrics_are_of_all_answers(task: Task) -> None:
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    answers = task.answer(None, type("Outputs", (), {"logits": logits}), batch)
    assert answers == [(0, 0), (0, 1)] and task.count(batch) == 2
    found = task.measure({"loss": 1.0, "targets": 2.0}, answers)
    assert found == {"loss": 0.5, "accuracy": 0.5, "f1_macro": pytest.approx(1 / 3)}


def test_the_example_is_what_the_model_sees(task: Task) -> None:
    config = qkv.QkvEncoderConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_labels=2, **task.config
    )
    model = qkv.QkvEncoderForSequenceClassification(config).eval()
    example = task.example(model)
    assert example.given == "aa" and example.expected["label"] in ("LABEL_0", "LABEL_1")


def test_texts_without_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="text.label"):
        TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS))


PAIRS = {"train": ["x", "y", "x y", "y"], "test": ["x", "y"]}
NUMBERS = {"train": [0.5, -100.0, 2.0, 3.25], "test": [1.5, -1.0]}


def encoder(task: Task, **fields: object) -> qkv.QkvEncoderForSequenceClassification:
    """A tiny model of a task."""
    config = qkv.QkvEncoderConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, **{**task.config, **fields}
    )
    return qkv.QkvEncoderForSequenceClassification(config).eval()


def test_pairs_are_two_texts_with_their_ends() -> None:
    task = TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS, LABELS, ["A", "B"], pairs=PAIRS))
    batch = task.collate(task.train.__getitems__([1, 3]), [0, 1])
    decoded = [task.processor.decode(row) for row in batch["input_ids"]]
    assert decoded == ["<s>b</s>y</s><pad><pad><pad>", "<s>bb b</s>y</s>"]
    model = encoder(task, num_labels=2, id2label={0: "A", 1: "B"}, label2id={"A": 0, "B": 1})
    example = task.example(model)
    answer = pipeline("text-classification", model=model, tokenizer=task.processor)(example.given, **example.options)
    assert answer[0]["label"] == example.expected["label"]
    (name,) = task.baselines()
    assert "characters" in name  # no word of two letters occurs twice


def test_a_loaded_tokenizer_of_pairs_gives_its_segments(tmp_path: Path) -> None:
    plain = TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS, LABELS, ["A", "B"], pairs=PAIRS)).processor
    plain.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    template = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 2), ("</s>", 1)]
    )
    plain.backend_tokenizer.post_processor = template
    plain.save_pretrained(tmp_path)
    recipe = recipe_of(text=dict(tokenizer=str(tmp_path), length=8))
    task = TextClassification(recipe, Corpus("c", "t", "s", TEXTS, LABELS, ["A", "B"], pairs=PAIRS))
    batch = task.collate(task.train.__getitems__([1, 3]), [0, 1])
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]]


def test_numbers_are_learned_by_their_squared_error() -> None:
    task = TextRegression(RECIPE, Corpus("c", "t", "s", TEXTS, numbers=NUMBERS))
    batch = task.collate(task.train.__getitems__([0, 1, 3]), [0, 1, 2])
    assert batch["labels"].tolist() == [0.5, -100.0, 3.25] and task.count(batch) == 3
    model = encoder(task)
    outputs = model(**batch)
    expected = ((outputs.logits[:, 0] - batch["labels"]) ** 2).mean()
    assert float(outputs.loss) == pytest.approx(float(expected))
    found = task.measure({"loss": 1.0, "targets": 2.0}, [(1.0, 2.0), (3.0, 2.0), (5.0, 8.0)])
    assert found == {"loss": 0.5, "mae": pytest.approx(5 / 3), "rmse": pytest.approx((11 / 3) ** 0.5),
                     "pearson": pytest.approx(0.866, abs=1e-3), "spearman": pytest.approx(0.866, abs=1e-3)}  # fmt: skip
    example = task.example(model)
    answer = pipeline("text-classification", model=model, tokenizer=task.processor)(example.given, **example.options)
    assert answer[0]["label"] == example.expected["label"]
    ((first, _), _) = task.answer(model, model(**task.collate(task.splits["test"].__getitems__([0, 1]), None)),
                                  task.collate(task.splits["test"].__getitems__([0, 1]), None))  # fmt: skip
    assert answer[0]["score"] == pytest.approx(first, abs=1e-5)
    mean = task.baselines()["the mean of the training"]["test"]
    assert mean["mae"] == pytest.approx(sum(abs(-23.5625 - each) for each in (1.5, -1.0)) / 2) and mean["pearson"] == 0


def prices(folder: Path) -> Path:
    """A table of prices in the thousands, which follow from a word; files of it are named after their folder."""
    rows = "".join(
        f"a {('cheap', 'fair', 'dear')[n % 3]} thing {n};{20_000 + 15_000 * (n % 3) + n}\n" for n in range(60)
    )
    (folder / "x.csv").write_text(f"text;price\n{rows}")
    return folder / "x.csv"


SMALL = ["text.label=price", "model.problem_type=regression", "text.length=16", "text.vocab_size=300", "model.hidden_size=16", "model.pattern=[full]",
         "model.num_hidden_layers=1", "model.num_attention_heads=2", "max_steps=60", "learning_rate=0.01"]  # fmt: skip


def test_numbers_of_any_unit_are_learned_and_given_back(tmp_path: Path) -> None:
    words = [f"data={prices(tmp_path)}", *SMALL, "warmup_steps=1", "model.classifier_dropout=0", "eval_every=60"]
    record = train(loading.load("docs-classify", [*words, f"out={tmp_path / 'run'}"]), "qkv train").record
    assert record["metrics"]["test"]["rmse"] < 5_000, "of numbers that deviate by 12,000"
    config = AutoConfig.from_pretrained(tmp_path / "run")
    assert (config.num_labels, config.problem_type) == (1, "regression") and "classes" not in record["data"]
    task = registry.load(loading.load("docs-classify", words))
    given = pipeline("text-classification", model=str(tmp_path / "run"), function_to_apply="none")
    errors = [
        given(text)[0]["score"] - number
        for text, number in zip(task.corpus.texts["test"], task.corpus.numbers["test"], strict=True)
    ]
    assert np.abs(errors).mean() == pytest.approx(record["metrics"]["test"]["mae"], rel=1e-3)
    again = [*words, f"init={tmp_path / 'run'}", "learning_rate=1e-12", "max_steps=1", f"out={tmp_path / 'more'}"]
    second = train(loading.load("docs-classify", again), "qkv train").record["metrics"]["test"]
    assert {name: second[name] for name in ("loss", "mae", "rmse")} == pytest.approx(
        {name: record["metrics"]["test"][name] for name in ("loss", "mae", "rmse")}, rel=1e-3
    )


def test_a_head_without_a_bias_is_scaled_alone() -> None:
    task = TextRegression(RECIPE, Corpus("c", "t", "s", TEXTS, numbers=NUMBERS))
    model = torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False))
    task.before_training(model)
    assert task.mean == 0.0 and task.deviation == pytest.approx(np.sqrt(np.mean(np.square(NUMBERS["train"]))))
    before = model(torch.ones(3)).item()
    task.after_training(model)
    assert model(torch.ones(3)).item() == pytest.approx(
        before * np.sqrt(np.mean(np.square(NUMBERS["train"]))), rel=1e-5
    )
