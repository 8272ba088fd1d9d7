"""Several tasks in one encoder-decoder: prefixes, mixing rates, and the metrics of each task apart."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from errors import raises_sentence
from qkv.scripts.cli import main
from qkv.scripts.data.corpus import Corpus, prefixed
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.tasks.registry import load
from qkv.scripts.tasks.seq2seq import MultitaskSeq2Seq
from qkv.scripts.training.early_stopping import EarlyStopping
from recipes import recipe_of

Runs = Callable[[str], Path]
TASKS = {"train": ["copy", "copy", "copy", "turn"], "test": ["turn", "copy"]}
TEXTS = {"train": ["ab", "ba", "aab", "ab"], "test": ["bba", "abb"]}
CORPUS = Corpus(
    "c", "t", "s", {name: list(map(prefixed, TASKS[name], own)) for name, own in TEXTS.items()},
    targets={"train": ["ab", "ba", "aab", "ba"], "test": ["abb", "abb"]}, tasks=TASKS,
)  # fmt: skip


def task(**options: object) -> MultitaskSeq2Seq:
    return MultitaskSeq2Seq(recipe_of(text={"tokenizer": "characters", "length": 16, **options}), CORPUS)


def test_metrics_are_of_all_texts_and_of_each_task() -> None:
    made = task()
    answers = [("abb", made.references[4]), ("aab", made.references[5])]
    found = made.measure({"loss": 4.0, "targets": 2.0}, answers)
    assert found["exact_match"] == 0.5 and found["loss"] == 2.0 and found["cer"] == pytest.approx(1 / 6)
    assert {name: found[f"exact_match of {name}"] for name in ("turn", "copy")} == {"turn": 1.0, "copy": 0.0}
    assert found["cer of copy"] == pytest.approx(1 / 3)
    assert made.shown(answers[0]) == {"task": "turn", "reference": "abb", "prediction": "abb"}
    assert set(made.measure({"loss": 4.0, "targets": 2.0}, answers, ["cer"])) == {
        "loss", "cer", "cer of turn", "cer of copy",
    }  # fmt: skip


def test_rates_follow_from_the_recipe() -> None:
    rates = [task(**options).mixture for options in ({}, {"mixing_limit": 1}, {"mixing_temperature": 2})]
    assert [each.rates["copy"] for each in rates if each] == pytest.approx([0.75, 0.5, 3**0.5 / (3**0.5 + 1)])


def test_less_is_better_of_the_errors_of_a_task() -> None:
    stopping = EarlyStopping("validation cer of copy it")
    assert stopping.update(1, {"validation": {"cer of copy it": 0.5}})
    assert stopping.update(2, {"validation": {"cer of copy it": 0.4}})
    assert not stopping.update(3, {"validation": {"cer of copy it": 0.6}})


def test_the_column_of_tasks_is_the_prefix(tmp_path: Path) -> None:
    rows = [("task", "text", "target")] + [
        (f"{'upper lower'.split()[n % 2]}:", f"wörd {n}", f"x {n}") for n in range(40)
    ]
    with (tmp_path / "own.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    recipe, shown = infer(str(tmp_path / "own.csv"), ["text.task=task"])
    made = load(recipe)
    assert shown["task"] == "seq2seq" and shown["column of task"] == "task (class)" and made.mixture is not None
    assert all(text.startswith(("upper: wörd", "lower: wörd")) for own in made.data.texts.values() for text in own)  # type: ignore[attr-defined]
    assert made.data.report["tasks"]["test"] == {"lower:": 2, "upper:": 2} and "classes" not in made.data.report
    with raises_sentence("own.csv", "'job'", "task"):
        infer(str(tmp_path / "own.csv"), ["text.task=job"])


def test_a_run_is_evaluated_and_predicts_by_task(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("tasks")
    record = json.loads((run / "record.json").read_text())
    counts = record["data"]["tasks"]["train"]
    rates = {name: count / sum(counts.values()) for name, count in counts.items()}
    assert record["data"]["mixing"] == pytest.approx(rates) and "mixing rates" in record["data"]["read"]
    data = run.parent / "data-tasks" / "tasks.jsonl"
    assert main(["evaluate", str(run), f"data={data}", "--out", str(tmp_path / "test")]) == 0
    metrics = json.loads((tmp_path / "test" / "metrics.json").read_text())["metrics"]
    assert {"exact_match", "exact_match of shout", "exact_match of repeat", "chrf of repeat"} <= metrics.keys()
    table = tmp_path / "own.csv"
    table.write_text("job,source\nshout,warm\n,repeat: dull\nsing,dull\n", encoding="utf-8")
    assert main(["predict", str(run), str(table), "max_new_tokens=3", "--out", str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row.get("error") is None for row in rows] == [True, True, False] and "'shout: '" in rows[2]["error"]


@pytest.mark.parametrize("corruption", ["spans", "infilling"])
def test_a_denoising_run_is_evaluated_and_fine_tuned(corruption: str, run_of: Runs, tmp_path: Path) -> None:
    run = run_of("denoised")
    table = run.parent / "data-denoised" / "denoised.jsonl"
    if corruption == "infilling":
        words = ["task=denoising", "text.corruption=infilling", "max_steps=2", f"init={run}", "holdout=0"]
        run = tmp_path / "run"
        assert main(["train", str(table), *words, f"out={run}"]) == 0
    assert main(["evaluate", str(run), f"data={table}", "--out", str(tmp_path / "test")]) == 0
    metrics = json.loads((tmp_path / "test" / "metrics.json").read_text())["metrics"]
    assert metrics.keys() == {"loss", "accuracy", "perplexity"}
    hidden = {"spans": "warm <extra_id_0> great", "infilling": "warm <mask> great"}[corruption]
    assert main(["predict", str(run), hidden, "max_new_tokens=3"]) == 0
