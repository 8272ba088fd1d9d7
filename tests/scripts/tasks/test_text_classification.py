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
from qkv.scripts.tasks.text_classification import TextClassification, TextRegression
from qkv.scripts.training.run import train
from recipes import recipe_of

TEXTS = {"train": ["aaa b", "b", "aaaaaaaaaaaaaaaa", "bb b"], "test": ["aa", "bb"]}
LABELS = {"train": [0, 1, 0, 1], "test": [0, 1]}
PAIRS = {"train": ["x", "y", "x y", "y"], "test": ["x", "y"]}
NUMBERS = {"train": [0.5, -100.0, 2.0, 3.25], "test": [1.5, -1.0]}
RECIPE = recipe_of(text=dict(tokenizer="characters", length=8))


def task_of(recipe: object = RECIPE, **pairs: object) -> TextClassification:
    return TextClassification(recipe, Corpus("c", "t", "s", TEXTS, LABELS, ["A", "B"], **pairs))


@pytest.mark.parametrize(
    ("pairs", "texts", "lengths", "sample"),
    [
        ({}, ["<s>b</s><pad><pad><pad>", "<s>bb b</s>"], [7, 3, 8, 6], {"prompt": "aa"}),
        (PAIRS, ["<s>b</s>y</s><pad><pad><pad>", "<s>bb b</s>y</s>"], [8, 5, 8, 8], {"prompt": "aa", "pair": "x"}),
    ],
)
def test_texts_and_pairs_are_framed_and_cut(pairs: dict, texts: list[str], lengths: list[int], sample: dict) -> None:
    task = task_of(pairs=pairs)
    batch = task.collate(task.train.__getitems__([1, 3]), [0, 1])
    assert [task.processor.decode(row) for row in batch["input_ids"]] == texts
    assert batch["attention_mask"].sum(1).tolist() == [lengths[1], lengths[3]] and batch["labels"].tolist() == [1, 1]
    assert task.train.lengths == lengths and task.labels == ["A", "B"] and task.sample() == sample


def test_a_loaded_tokenizer_of_pairs_gives_its_segments(tmp_path: Path) -> None:
    plain = task_of(pairs=PAIRS).processor
    plain.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    template = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 2), ("</s>", 1)]
    )
    plain.backend_tokenizer.post_processor = template
    plain.save_pretrained(tmp_path)
    task = task_of(recipe_of(text=dict(tokenizer=str(tmp_path), length=8)), pairs=PAIRS)
    batch = task.collate(task.train.__getitems__([1, 3]), [0, 1])
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]]


def test_metrics_are_of_all_answers() -> None:
    task = task_of()
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    answers = task.answer(None, type("Outputs", (), {"logits": torch.tensor([[1.0, 0.0], [2.0, 0.0]])}), batch)
    assert answers == [(0, 0), (0, 1)] and task.count(batch) == 2
    found = task.measure({"loss": 1.0, "targets": 2.0}, answers)
    assert found == {"loss": 0.5, "accuracy": 0.5, "f1_macro": pytest.approx(1 / 3)}
    with pytest.raises(ValueError, match="text.label"):
        TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS))


def test_numbers_are_learned_by_their_squared_error() -> None:
    task = TextRegression(RECIPE, Corpus("c", "t", "s", TEXTS, numbers=NUMBERS))
    batch = task.collate(task.train.__getitems__([0, 1, 3]), [0, 1, 2])
    assert batch["labels"].tolist() == [0.5, -100.0, 3.25] and task.count(batch) == 3
    config = qkv.QkvEncoderConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, **task.config)
    outputs = qkv.QkvEncoderForSequenceClassification(config).eval()(**batch)
    expected = ((outputs.logits[:, 0] - batch["labels"]) ** 2).mean()
    assert float(outputs.loss) == pytest.approx(float(expected))
    found = task.measure({"loss": 1.0, "targets": 2.0}, [(1.0, 2.0), (3.0, 2.0), (5.0, 8.0)])
    assert found == {"loss": 0.5, "mae": pytest.approx(5 / 3), "rmse": pytest.approx((11 / 3) ** 0.5),
                     "pearson": pytest.approx(0.866, abs=1e-3), "spearman": pytest.approx(0.866, abs=1e-3)}  # fmt: skip


SMALL = ["text.label=price", "model.problem_type=regression", "text.length=16", "text.vocab_size=300",
         "model.hidden_size=16", "model.pattern=[full]", "model.num_hidden_layers=1", "model.num_attention_heads=2",
         "max_steps=60", "learning_rate=0.01", "warmup_steps=1", "model.classifier_dropout=0", "eval_every=60"]  # fmt: skip


def test_numbers_of_any_unit_are_learned_and_given_back(tmp_path: Path) -> None:
    """Prices in the thousands, which follow from a word, deviate by 12,000."""
    rows = (f"a {('cheap', 'fair', 'dear')[n % 3]} thing {n};{20_000 + 15_000 * (n % 3) + n}\n" for n in range(60))
    (tmp_path / "x.csv").write_text("text;price\n" + "".join(rows))
    words = [f"data={tmp_path / 'x.csv'}", *SMALL]
    record = train(loading.load("docs-classify", [*words, f"out={tmp_path / 'run'}"]), "qkv train").record
    first = record["metrics"]["test"]
    assert first["rmse"] < 5_000
    config = AutoConfig.from_pretrained(tmp_path / "run")
    assert (config.num_labels, config.problem_type) == (1, "regression") and "classes" not in record["data"]
    corpus = registry.load(loading.load("docs-classify", words)).corpus
    given = pipeline("text-classification", model=str(tmp_path / "run"), function_to_apply="none")
    answers = [given(text)[0]["score"] for text in corpus.texts["test"]]
    assert np.abs(np.subtract(answers, corpus.numbers["test"])).mean() == pytest.approx(first["mae"], rel=1e-3)
    again = [*words, f"init={tmp_path / 'run'}", "learning_rate=1e-12", "max_steps=1", f"out={tmp_path / 'more'}"]
    second = train(loading.load("docs-classify", again), "qkv train").record["metrics"]["test"]
    assert all(second[name] == pytest.approx(first[name], rel=1e-3) for name in ("loss", "mae", "rmse"))


def test_a_head_without_a_bias_is_scaled_alone() -> None:
    task = TextRegression(RECIPE, Corpus("c", "t", "s", TEXTS, numbers=NUMBERS))
    model = torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False))
    task.before_training(model)
    scale = np.sqrt(np.mean(np.square(NUMBERS["train"])))
    assert task.mean == 0.0 and task.deviation == pytest.approx(scale)
    before = model(torch.ones(3)).item()
    task.after_training(model)
    assert model(torch.ones(3)).item() == pytest.approx(before * scale, rel=1e-5)
