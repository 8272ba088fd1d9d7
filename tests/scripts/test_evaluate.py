"""`qkv evaluate`: the metrics of the record on the run's own test, every kind on a table, and what is left in the folder."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from datasets import ClassLabel, Dataset, Features, Image, Value

import own_runs
import stock_folders
from qkv.scripts.cli import main
from sampling import sampled

Runs = Callable[[str], Path]
FEW = "resamples=20"
kinds = pytest.mark.parametrize("kind", sampled(own_runs.KINDS, 7, 3))


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The facts and the rows of an evaluation."""
    with (folder / "rows.csv").open(encoding="utf-8") as file:
        return json.loads((folder / "metrics.json").read_text(encoding="utf-8")), list(csv.DictReader(file))


@kinds
def test_the_metrics_of_a_run_are_those_of_its_record(
    kind: str, run_of: Runs, runs_folder: Path, tmp_path: Path
) -> None:
    run, table = run_of(kind), runs_folder / f"data-{kind}" / f"{kind}.jsonl"
    assert main(["evaluate", str(run), f"data={table}", FEW, "--out", str(tmp_path / "out")]) == 0
    facts, rows = read(tmp_path / "out")
    record = json.loads((run / "record.json").read_text())
    expected = {name: value for name, value in record["metrics"]["test"].items()}
    if kind == "captions":
        expected.pop("loss")  # of all pairs of a batch together
    if kind in ("speech", "targets"):
        expected = {name: expected[name] for name in ("loss", "exact_match")}
    if kind == "numbers":
        expected.pop("loss")  # in training that of standardised numbers, here that of the numbers themselves
    values = {name: own["value"] for name, own in facts["metrics"].items()}
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert facts["rows"] == len(rows) == record["data"]["sizes"]["test"] and facts["seed"] == 0
    assert facts["data"]["sha256"] == record["data"]["sha256"] and facts["command"].startswith("qkv evaluate run")


@kinds
def test_a_table_is_evaluated_row_by_row(kind: str, run_of: Runs, tmp_path: Path) -> None:
    run, table = run_of(kind), own_runs.data(kind, tmp_path, 9 if kind == "denoised" else 6, seed=0)
    assert main(["evaluate", str(run), str(table), FEW, "--out", str(tmp_path / "out")]) == 0
    facts, rows = read(tmp_path / "out")
    for own in facts["metrics"].values():
        assert own["interval"] is None or own["interval"][0] <= own["interval"][1]
    assert [int(row["row"]) for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 6
    if kind in ("classes", "images"):
        assert [row["reference"] for row in rows] == ["good", "bad"] * 3
        assert all(float(row["loss"]) > 0 and 0.5 <= float(row["score"]) <= 1 for row in rows)
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"metrics.json", "rows.csv", "confusion.png"}
        assert min(PIL.Image.open(tmp_path / "out" / "confusion.png").size) > 300
    if "accuracy" in facts["metrics"] and "correct" in rows[0] and kind != "tags":
        share = sum(row["correct"] == "true" for row in rows) / len(rows)
        assert share == pytest.approx(facts["metrics"]["accuracy"]["value"])


@pytest.mark.parametrize("kind", ["classes", "images", "tags"])
def test_rows_of_the_training_are_counted_and_the_others_measured(kind: str, run_of: Runs, tmp_path: Path) -> None:
    record, found = json.loads((run_of(kind) / "record.json").read_text()), []
    for name, count, seed in (("all", 30, 0), ("new", 4, 5)):
        table = own_runs.data(kind, tmp_path / name, count, seed)
        assert main(["evaluate", str(run_of(kind)), str(table), FEW, "--out", str(tmp_path / f"{name}-out")]) == 0
        found.append(read(tmp_path / f"{name}-out"))
    (facts, rows), (new, others) = found
    assert facts["seen"]["train"] == record["data"]["sizes"]["train"] == [row["seen_in"] for row in rows].count("train")
    assert new["seen"] == {"train": 0, "validation": 0} and not any(row["seen_in"] for row in others)
    values = {name: own["value"] for name, own in facts["seen"]["metrics of the others"].items()}
    assert values == pytest.approx(record["metrics"]["test"], rel=1e-4, abs=1e-6)


def test_rows_of_an_earlier_run_are_seen_and_those_of_other_models_unknown(run_of: Runs, tmp_path: Path) -> None:
    run, data = run_of("classes"), own_runs.data("classes", tmp_path / "more", 20, seed=9)
    words = ["max_steps=2", f"init={run}", "holdout=0", f"out={tmp_path / 'run'}"]
    assert main(["train", str(data), *words]) == 0
    shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("training-rows.npz", "evaluation-*"))
    table = own_runs.data("classes", tmp_path / "all", 30)
    found = []
    for source in (run, tmp_path / "run", tmp_path / "copy"):
        assert main(["evaluate", str(source), str(table), FEW, "--out", str(tmp_path / f"{source.name}-out")]) == 0
        found.append(read(tmp_path / f"{source.name}-out")[0]["seen"])
    assert found[0] and found[1]["train"] == found[0]["train"] > 0 and found[2] is None


def test_a_table_of_one_class(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\nwarm bright,good\nwarm,good\n,good\n")
    assert main(["evaluate", str(run_of("classes")), str(tmp_path / "a.csv"), FEW, "--out", str(tmp_path / "o")]) == 0
    facts, rows = read(tmp_path / "o")
    assert facts["rows"] == 2 and [row["reference"] for row in rows] == ["good", "good"]


@pytest.mark.parametrize("kind", ["classes", "images"])
@pytest.mark.parametrize("classes", [["good", "bad"], ["bad", "good"]])
@pytest.mark.costly(2)
def test_a_parquet_table_that_numbers_its_classes(kind: str, classes: list[str], run_of: Runs, tmp_path: Path) -> None:
    lines = own_runs.data(kind, tmp_path, 6, seed=5)
    rows = [json.loads(line) | {"label": classes.index("good")} for line in lines.read_text().splitlines()]
    types = Features({"text": Value("string"), "label": ClassLabel(names=classes)})
    if kind == "images":
        rows = [{"picture": {"bytes": (tmp_path / row["image"]).read_bytes(), "path": None}, **row} for row in rows]
        rows = [{"picture": row["picture"], "label": row["label"]} for row in rows]
        types = Features({"picture": Image(), "label": types["label"]})
    Dataset.from_list(rows, features=types).to_parquet(tmp_path / "a.parquet")
    lines.write_text("".join(json.dumps(json.loads(line) | {"label": "good"}) + "\n" for line in lines.open()))
    found = []
    for table in (lines, tmp_path / "a.parquet"):
        out = tmp_path / f"out{table.suffix}"
        assert main(["evaluate", str(run_of(kind)), str(table), FEW, "--out", str(out)]) == 0
        found.append([[row[name] for name in ("prediction", "reference", "loss")] for row in read(out)[1]])
    assert found[0] == found[1] and {reference for _, reference, _ in found[0]} == {"good"}


def test_a_column_of_another_name(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("body;kind\nwarm, bright;good\nwarm;bad\n")
    words = ["evaluate", str(run_of("classes")), str(tmp_path / "a.csv"), FEW]
    assert main([*words, "text=body", "label=kind", "--out", str(tmp_path / "out")]) == 0
    assert [row["reference"] for row in read(tmp_path / "out")[1]] == ["good", "bad"]


STOCK: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a classifier": (stock_folders.bert, "classes"),
    "a masked language model": (stock_folders.masked_bert, "texts"),
    "a language model": (stock_folders.gpt2, "texts"),
    "an image classifier": (stock_folders.vit, "images"),
}


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_model_is_evaluated(name: str, tmp_path: Path) -> None:
    make, kind = STOCK[name]
    table = own_runs.data(kind, tmp_path / "data", 8)  # whose texts are longer than its positions
    words = ["evaluate", str(make(tmp_path / "model")), str(table), FEW, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    facts, rows = read(tmp_path / "out")
    assert facts["metrics"]["loss"]["value"] > 0 and len(rows) == facts["rows"] > 0


@pytest.mark.slow
def test_own_data_called_as_example_data(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    own_runs.data("images", tmp_path / "digits", 30)
    assert main(["train", "./digits", *own_runs.KINDS["images"], "holdout=0", f"out={tmp_path / 'run'}"]) == 0
    for number, words in enumerate(([], ["data=digits"], ["data=./digits"], [f"data={tmp_path}/digits"])):
        assert main(["evaluate", "run", *words, FEW, "--out", f"out{number}"]) == 0
    assert len({json.dumps(read(tmp_path / f"out{number}")[0]["data"]) for number in range(4)}) == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["evaluate", "../run", FEW]) == 1
    assert "data=path/digits" in capsys.readouterr().err
    assert main(["evaluate", "../run", "data=../digits", FEW, "--out", "out"]) == 0


def test_two_models_are_compared_on_the_same_rows(run_of: Runs, tmp_path: Path) -> None:
    run, table = run_of("classes"), own_runs.data("classes", tmp_path, 20, seed=5)
    words = ["evaluate", str(run), str(table), FEW, "--out", str(tmp_path / "out")]
    assert main([*words, "--against", str(run)]) == 0
    facts, _ = read(tmp_path / "out")
    assert all(own["value"] == 0 for own in facts["against"]["differences"].values())
    assert facts["against"]["seen"] == {"train": 0, "validation": 0}
    other = ["evaluate", str(run), str(table), "--against", str(run_of("texts")), "--out", str(tmp_path / "no")]
    assert main(other) == 1


def test_entities_behind_the_cut_are_missed_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["meet", *["and"] * 60, "Rome"]
    row = {"tokens": words, "tags": ["B-PER", *["O"] * 60, "B-LOC"]}
    for name, count in (("train", 30), ("new", 8)):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({**row, "tokens": [*words[:-1], f"Rome{number}"]}) + "\n" for number in range(count))
        )
    small = [*own_runs.KINDS["tags"], "max_steps=60", "learning_rate=0.05", "text.length=40"]
    train = ["train", str(tmp_path / "train.jsonl"), *small, "leaked_records=1", f"out={tmp_path / 'run'}"]
    assert main(train) == 0
    capsys.readouterr()
    assert (
        main(["evaluate", str(tmp_path / "run"), str(tmp_path / "new.jsonl"), FEW, "--out", str(tmp_path / "o")]) == 0
    )
    metrics = {name: own["value"] for name, own in read(tmp_path / "o")[0]["metrics"].items()}
    record = json.loads((tmp_path / "run" / "record.json").read_text())["metrics"]["test"]
    assert metrics["recall"] <= 0.5 and record["recall"] <= 0.5 and metrics["accuracy"] < 1
    assert "text.length=40" in capsys.readouterr().err
