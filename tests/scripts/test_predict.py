"""`qkv predict`: every kind of model, the numbers of the model itself, each row in its place."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import own_runs
import stock_folders
from qkv.scripts.cli import main
from qkv.scripts.common.phases import say_once
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.inputs import read_table
from qkv.scripts.prediction.predictor import predictions
from qkv.scripts.prediction.source import open_source
from sampling import sampled

Runs = Callable[[str], Path]
# Options and the columns of each kind; the slow ones train for seconds.
FAST = ("classes", "tags", "texts", "images")
OPTIONS: dict[str, list[str]] = {
    "captions": ["labels=a cat,a dög"],
    **dict.fromkeys(("boxes", "folds", "encoder-folds"), ["threshold=0"]),
    **dict.fromkeys(
        ("targets", "responses", "texts", "speech", "tasks", "denoised", "chats", "infilled"), ["max_new_tokens=3"]
    ),
}
PLAIN = "numbers speech ctc targets responses texts tasks denoised chats infilled".split()  # without a score


@pytest.mark.parametrize("kind", [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in own_runs.KINDS])
def test_every_kind(kind: str, run_of: Runs, tmp_path: Path) -> None:
    run, table = run_of(kind), own_runs.data(kind, tmp_path, 5, seed=1)
    if kind == "masked":
        lines = [json.dumps({"text": f"{word} {{mask}} ä"}) for word in own_runs.WORDS[:5]]
        table.write_text("\n".join(lines), encoding="utf-8")
    given = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    assert main(["predict", str(run), str(table), *OPTIONS.get(kind, []), "--out", str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [{name: row[name] for name in before} for row, before in zip(rows, given, strict=True)] == given
    new = {"prediction"} if kind in PLAIN else {"prediction", "score"}
    new |= {"start"} if kind.endswith("answers") else {"ptm"} if kind == "proteins" else set()
    assert all(row.keys() - before.keys() == new for row, before in zip(rows, given, strict=True))
    for row in rows:
        assert row["prediction"] not in (None, []) and 0 <= row.get("score", 0) <= 10
    if kind == "tags":
        assert all(len(row["prediction"]) == len(row["tokens"]) for row in rows)
    if kind == "boxes":
        assert rows[0]["prediction"][0].keys() == {"bbox", "category", "score"}


@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_ends_that_are_not_read_are_said_once(kind: str, run_of: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(kind)
    most = AutoTokenizer.from_pretrained(run).model_max_length
    for words, lines in ((most // 4, 0), (3 * most, 1)):
        say_once.cache_clear()
        assert main(["predict", str(run), "warm " * words]) == 0
        assert capsys.readouterr().err.count(f"{most:,} tokens") == lines


@pytest.mark.parametrize("stock", [False, True])
def test_the_numbers_are_those_of_the_model(run_of: Runs, tmp_path: Path, *, stock: bool) -> None:
    run, table = run_of("classes"), own_runs.data("classes", tmp_path, 40, seed=2)
    if stock:  # with fewer positions than the tokens of a text, and a tokenizer that does not say so
        run = stock_folders.bert(tmp_path / "bert")
        table.write_text(table.read_text() + "\n" + json.dumps({"text": "warm " * 30}))
    assert main(["predict", str(run), str(table), "batch_size=7", "--out", str(tmp_path / "out.jsonl")]) == 0
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(run), AutoTokenizer.from_pretrained(run)
    most = {"truncation": stock, "max_length": stock_folders.POSITIONS}
    for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        with torch.no_grad():
            best = model(**tokenizer(row["text"], return_tensors="pt", **most)).logits[0].softmax(-1).max(-1)
        assert row["prediction"] == model.config.id2label[int(best.indices)]
        assert row["score"] == pytest.approx(float(best.values), rel=1e-4)


def test_rows_that_cannot_be_used_say_why_in_their_place(
    run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("text,score\nwarm,1\n,2\na,b,c\ndull,4\n")
    assert main(["predict", str(run_of("classes")), str(tmp_path / "a.csv"), "--out", str(tmp_path / "b.csv")]) == 0
    with (tmp_path / "b.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["warm", "", "", "dull"]
    assert [row["score"] for row in rows] == ["1", "2", "", "4"] and rows[0]["prediction_score"]
    assert [bool(row["prediction"]) for row in rows] == [True, False, False, True]
    assert rows[1]["error"] == "empty" and "fields" in rows[2]["error"]
    assert "2 of 4 rows have no prediction; the column 'error' says why; first row 2: empty" in capsys.readouterr().err


MANY = [
    *(json.dumps({"text": "", "id": number}) for number in range(200)),
    *(json.dumps({"text": f"{own_runs.WORDS[number % 5]} {number}", "id": number}) for number in range(1000)),
    "no JSON",
    json.dumps({"text": "warm", "id": 0.5, "score": [1, {"ä": None}], "late": '"a",\t\n'}),
    json.dumps({"id": None, "late": "b"}),
]


@pytest.mark.parametrize("suffix", sampled([".csv", ".tsv", ".parquet", ".jsonl", "", ".json"], 2))
def test_a_table_of_many_rows_is_written_as_a_whole_one(
    suffix: str, run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows come in parts, but of the first none can be used, and later ones have columns, types and errors of their own."""
    (tmp_path / "in.jsonl").write_text("\n".join(MANY), encoding="utf-8")
    source, out = open_source(str(run_of("classes"))), tmp_path / f"out{suffix}"
    assert main(["predict", source.name, str(tmp_path / "in.jsonl"), *(["--out", str(out)] if suffix else [])]) == 0
    printed = capsys.readouterr()
    assert "202 of 1203" in printed.err and "row 1: empty" in printed.err
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", out.name} - {"out"}
    columns, rows = ["text", "id", "score", "late", "prediction", "prediction_score", "error"], []
    for line, (_, answer) in zip(MANY, predictions(read_table(tmp_path / "in.jsonl", {}), source, {}), strict=True):
        row = json.loads(line) if line != "no JSON" else {}
        if isinstance(answer, InvalidRecord):
            row["error"] = str(answer)
        else:
            row |= {"prediction": answer["prediction"], "prediction_score": answer["score"]}
        rows.append({name: row.get(name) for name in columns})
    assert [row["error"] for row in rows[198:202]] == ["empty", "empty", None, None] and "JSON" in rows[1200]["error"]
    if suffix == ".parquet":
        table = pq.read_table(out)
        whole = {name: [row[name] for row in rows] for name in columns}
        whole["score"] = [each and json.dumps(each, ensure_ascii=False) for each in whole["score"]]
        assert table.equals(pa.table(whole))
        assert table.schema.field("id").type == pa.float64()
        return
    assert (out.read_bytes().decode() if suffix else printed.out) == whole_text(rows, suffix)


def whole_text(rows: list[dict[str, Any]], suffix: str) -> str:
    """The table of rows whose column `score` alone has objects, made at once."""
    if suffix in (".jsonl", ".json"):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        return "\n".join([*lines, ""]) if suffix == ".jsonl" else f"[{', '.join(lines)}]\n"
    file = io.StringIO()
    writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
    texts = [row | {"score": row["score"] and json.dumps(row["score"], ensure_ascii=False)} for row in rows]
    writer.writerows([rows[0], *map(dict.values, texts)])
    return file.getvalue()


def test_rows_of_which_none_can_be_used_leave_no_file(
    run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("text,id\n" + ",1\n" * 300)
    assert main(["predict", str(run_of("classes")), str(tmp_path / "a.csv"), "--out", str(tmp_path / "b.csv")]) == 1
    assert "row 1: empty" in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_text_is_answered_on_the_screen(run_of: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(run_of("classes")), "warm, naïve"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert rows[0]["text"] == "warm, naïve" and rows[0]["prediction"] in ("good", "bad")


def test_a_stock_model_predicts_classes_of_images(tmp_path: Path) -> None:
    table, out = own_runs.data("images", tmp_path / "data", 5), tmp_path / "out.jsonl"
    assert main(["predict", str(stock_folders.vit(tmp_path / "vit")), str(table), "--out", str(out)]) == 0
    rows = list(read_table(out, {}).rows())
    assert {row["prediction"] for row in rows} <= {"bad", "good"} and all(0.5 <= row["score"] <= 1 for row in rows)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ""])
def test_other_columns_come_back_as_they_were(suffix: str, run_of: Runs, tmp_path: Path, capsys: Any) -> None:
    own = [
        {"id": 1234567890123, "text": "warm", "time": 1699999999.123456, "lat": 48.85837012, "big": 2**60 + 1},
        {"id": 2, "text": 'dull\n"two", three', "time": 1700000000.5, "lat": -0.000012345678, "big": 0},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, own)))
    out = ["--out", str(tmp_path / f"out{suffix}")] if suffix else []
    assert main(["predict", str(run_of("classes")), str(tmp_path / "in.jsonl"), *out]) == 0
    if suffix in (".csv", ""):
        text = (tmp_path / "out.csv").read_text() if suffix else capsys.readouterr().out
        rows = [
            {name: kind(row[name]) for name, kind in zip(own[0], (int, str, float, float, int), strict=True)}
            for row in csv.DictReader(io.StringIO(text, newline=""))
        ]
    else:
        rows = [{name: row[name] for name in own[0]} for row in list(read_table(tmp_path / f"out{suffix}", {}).rows())]
    assert rows == own


def test_numbers_of_any_size_are_predicted_to_the_last_digit(run_of: Runs, tmp_path: Path) -> None:
    run, table = run_of("numbers"), own_runs.data("numbers", tmp_path, 5)
    for name in ("out.csv", "out.jsonl"):
        assert main(["predict", str(run), str(table), "--out", str(tmp_path / name)]) == 0
    found = [float(row["prediction"]) for row in csv.DictReader((tmp_path / "out.csv").open())]
    assert found == [row["prediction"] for row in list(read_table(tmp_path / "out.jsonl", {}).rows())]


def test_several_classes_are_those_above_the_threshold(tmp_path: Path) -> None:
    words = [("warm", ["good"]), ("dull", ["bad"]), ("warm dull", ["bad", "good"]), ("plain", [])]
    rows = [{"text": f"{words[n % 4][0]} {n}", "labels": words[n % 4][1]} for n in range(80)]
    table, run = own_runs.write_rows(tmp_path / "x.jsonl", rows), tmp_path / "run"
    assert main(["train", str(table), *own_runs.SMALL, f"out={run}", "holdout=0", "max_steps=4"]) == 0
    classify = pipeline("text-classification", model=str(run), trust_remote_code=True, top_k=None)
    scores = [{each["label"]: each["score"] for each in own} for own in classify([row["text"] for row in rows])]
    assert not all(abs(sum(own.values()) - 1) < 0.01 for own in scores)  # a sigmoid for each
    assert {"top_k=None", "sigmoid()"} <= {*re.findall(r"top_k=None|sigmoid\(\)", (run / "README.md").read_text())}
    threshold = sorted(own["good"] for own in scores)[40]
    out = tmp_path / "out.jsonl"
    assert main(["predict", str(run), str(table), f"threshold={threshold}", "--out", str(out)]) == 0
    for line, own in zip(out.read_text().splitlines(), scores, strict=True):
        row = json.loads(line)
        assert row["scores"] == pytest.approx(own, abs=1e-6)
        assert row["prediction"] == [name for name in ("bad", "good") if row["scores"][name] >= threshold]
    assert main(["evaluate", str(run), str(table), "resamples=20", "--out", str(tmp_path / "made")]) == 0
    metrics = json.loads((tmp_path / "made" / "metrics.json").read_text())["metrics"]
    model = AutoModelForSequenceClassification.from_pretrained(run, trust_remote_code=True)
    found = [[name for name in ("bad", "good") if own[name] >= 0.5] for own in scores]
    right = sum(one == row["labels"] for one, row in zip(found, rows, strict=True)) / len(rows)
    assert metrics["exact_match"]["value"] == pytest.approx(right) and metrics.keys() >= {"f1_micro", "f1_macro"}
    assert model.config.problem_type == "multi_label_classification" and model.config.id2label == {0: "bad", 1: "good"}
