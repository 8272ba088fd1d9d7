"""`task=WORD` chooses the architecture of a recipe and of data, and must be the task of a trained model."""

from pathlib import Path

import pytest

from errors import raises_sentence
from own_runs import SMALL, write_rows
from qkv.scripts.cli import main
from qkv.scripts.common.heads import HEADS, WORDS, head_for
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.prediction.source import open_source
from qkv.scripts.recipes.loading import load


@pytest.mark.parametrize(
    ("recipe", "task", "architecture"),
    [
        ("docs-mlm", "text-classification", "QkvEncoderForSequenceClassification"),
        ("docs-mlm", "token-classification", "QkvEncoderForTokenClassification"),
        ("translate", "seq2seq", "QkvEncoderDecoderForConditionalGeneration"),
        ("docs-mlm", "regression", "QkvEncoderForSequenceClassification"),
    ],
)
def test_a_recipe_keeps_its_family(recipe: str, task: str, architecture: str) -> None:
    made = load(recipe, [f"task={task}"])
    assert made.model.architecture == architecture
    assert made.model.config.get("problem_type") == ("regression" if task == "regression" else None)
    with raises_sentence("'seqtoseq'", "'seq2seq'"):
        load(recipe, ["task=seqtoseq"])


@pytest.mark.parametrize(
    ("task", "architecture"),
    [
        ("translation", "QkvEncoderDecoderForConditionalGeneration"),
        ("text-generation", "QkvDecoderForCausalLM"),
        ("causal-lm", "QkvDecoderForCausalLM"),
        ("fill-mask", "QkvEncoderForMaskedLM"),
    ],
)
@pytest.mark.parametrize("names", [("question", "answer"), ("prompt", "response"), ("instruction", "output")])
def test_words_of_heads_choose_the_task_of_data(
    names: tuple[str, str], task: str, architecture: str, tmp_path: Path
) -> None:
    rows = [dict(zip(names, (f"what is {n}?", f"It is {n % 5}."), strict=True)) for n in range(60)]
    where = str(write_rows(tmp_path / "x.jsonl", rows))
    assert infer(where)[0].model.architecture == "QkvEncoderDecoderForConditionalGeneration"
    recipe = infer(where, [f"task={task}"])[0]
    assert recipe.model.architecture == architecture
    assert recipe.text.target == (None if task == "fill-mask" else names[1])


def test_a_model_has_one_task(tmp_path: Path) -> None:
    assert {head_for(word).task for word in WORDS} <= {head.task for head in HEADS}
    rows = [{"text": f"a {n}", "label": "xy"[n % 2]} for n in range(40)]
    where, run = str(write_rows(tmp_path / "x.jsonl", rows)), str(tmp_path / "run")
    assert main(["train", where, *SMALL, "holdout=0", f"out={run}"]) == 0
    assert open_source(run, task="text-classification").task == "text-classification"
    for command in ("predict", "evaluate"):
        assert main([command, run, where, "task=seq2seq"]) == 1
    with raises_sentence("task=seq2seq", "text-classification"):
        open_source(run, task="seq2seq")
