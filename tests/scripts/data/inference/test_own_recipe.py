"""What is inferred from own data: the task by the columns, sizes by the values, and words that count more."""

import json
import math
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Audio, Dataset, Features, Value
from datasets import Image as ImageFeature
from PIL import Image

from qkv.scripts.data.inference.own_recipe import infer, recipe_of
from qkv.scripts.tasks import registry
from sine_waves import recordings


def table(folder: Path, columns: dict, count: int = 60) -> str:
    """A file of rows: texts with the number of the row, classes by turns."""

    def value(given: object, row: int) -> object:
        own = given[row % len(given)] if isinstance(given, list) else given
        if isinstance(own, list):
            return [word.format(row) for word in own]
        return own.format(row) if isinstance(own, str) else row

    rows = [{"id": row, **{name: value(given, row) for name, given in columns.items()}} for row in range(count)]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "own.jsonl")


def picture(number: int, side: int = 20) -> dict[str, object]:
    file = BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (side, side + 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


def test_folders_of_images_are_classes_and_their_sizes_the_models(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(20):
            (tmp_path / name / f"{number}.png").write_bytes(picture(number + 100 * (name == "cat"))["bytes"])
    recipe, shown = infer(str(tmp_path))
    assert shown["task"] == "image-classification" and shown["model.image_size"] == "16, in patches of 2"
    assert registry.load(recipe).data.report["classes"]["test"] == {"cat": 2, "dog": 2}


@pytest.mark.parametrize(("image", "kind"), [("image", "digit"), ("photo", "label"), ("photo", "species")])
def test_tables_of_images_and_classes_may_call_them_anything(image: str, kind: str, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.png").write_bytes(picture(number)["bytes"])
    rows = [f"{number}.png,{'cat' if number % 2 else 'dog'}" for number in range(20)]
    (tmp_path / "table.csv").write_text("\n".join([f"{image},{kind}", *rows]))
    recipe, shown = infer(str(tmp_path / "table.csv"))
    assert shown["task"] == "image-classification" and shown["column of class"] == f"{kind} (class)"
    assert registry.load(recipe).data.report["classes"]["test"] == {"cat": 1, "dog": 1}
    table = Dataset.from_csv(str(tmp_path / "table.csv"))
    paths = [str(tmp_path / f"{number}.png") for number in range(20)]
    table = table.remove_columns(image).add_column(image, paths).cast_column(image, ImageFeature())
    table.to_parquet(tmp_path / "table.parquet")
    table.save_to_disk(tmp_path / "saved")
    for where in ("table.parquet", "saved"):
        recipe, _ = infer(str(tmp_path / where))
        assert registry.load(recipe).data.report["classes"]["test"] == {"cat": 1, "dog": 1}


@pytest.mark.parametrize("typed", [True, False])
def test_recordings_that_a_parquet_table_stores(tmp_path: Path, *, typed: bool) -> None:
    recordings(tmp_path / "wavs")
    folder = tmp_path / "wavs" / "train"
    lines = [json.loads(line) for line in (folder / "metadata.jsonl").open()]
    sounds = [{"bytes": (folder / row["file_name"]).read_bytes(), "path": None} for row in lines]
    rows = [{"clip": sound, "sentence": row["text"]} for sound, row in zip(sounds, lines, strict=True)]
    types = Features({"clip": Audio(), "sentence": Value("string")}).arrow_schema if typed else None
    pq.write_table(pa.Table.from_pylist(rows, schema=types), tmp_path / "a.parquet")
    Dataset.from_parquet(str(tmp_path / "a.parquet")).save_to_disk(tmp_path / "saved")
    for where in ("a.parquet", "saved")[: 1 + typed]:
        recipe, shown = infer(str(tmp_path / where))
        assert shown["task"] == "speech-recognition" and shown["column of text"] == "sentence (text)"
        assert sum(registry.load(recipe).sizes().values()) == len(rows)


def test_words_count_more_than_guesses(tmp_path: Path) -> None:
    where = table(tmp_path, {"title": "a title {}", "body": "a long text of words {}", "kind": ["a", "b"], "y": [0, 1]})
    recipe, _ = infer(where, ["text.column=title", "text.label=kind", "max_steps=7", "model.position=alibi"])
    assert (recipe.text.column, recipe.text.label) == ("title", "kind") and recipe.optimization.max_steps == 7
    assert recipe.model.config["position"] == "alibi" and recipe.model.config["hidden_size"] == 128
    assert infer(where, ["text.column=body"])[0].text.label == "y"
    assert infer(where, ["architecture=QkvDecoderForCausalLM"])[0].model.architecture == "QkvDecoderForCausalLM"


@pytest.mark.parametrize(("words", "steps"), [(["max_steps=50"], 50), (["epochs=3", "batch_size=10"], 12)])
def test_lengths_follow_the_texts_and_steps_the_rows(words: list[str], steps: int, tmp_path: Path) -> None:
    long = infer(table(tmp_path, {"text": "many words " * 60 + "{}"}, count=600))[0]
    where = table(tmp_path, {"text": "one {}"}, count=40)
    short, typed = infer(where)[0], infer(where, words)[0]
    assert (short.text.length, long.text.length) == (32, 256)
    assert short.optimization.max_steps == 200 < long.optimization.max_steps
    assert typed.schedule.warmup_steps == steps // 10 and typed.output.eval_every == math.ceil(steps / 5)
    assert infer(where, [*words, "warmup=3"])[0].schedule.warmup_steps == 3


def test_data_that_are_called_as_a_recipe_is_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe_of("digits").name == "digits" and not capsys.readouterr().err
    (tmp_path / "digits").mkdir()
    assert recipe_of("digits").name == "digits" and "write ./digits for the data here" in capsys.readouterr().err


def test_the_best_weights_by_validation_are_kept_where_there_is_one(tmp_path: Path) -> None:
    where = table(tmp_path, {"review": "a text of words {}", "sentiment": ["good", "bad"]})
    assert infer(where)[0].output.watch == "validation accuracy"
    assert infer(where, ["watch=validation loss"])[0].output.watch == "validation loss"
    assert infer(where, ["holdout=0"])[0].output.watch is None
