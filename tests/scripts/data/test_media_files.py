"""Pictures and recordings in folders and tables as people have them: each is read, or a line says why not."""

import json
import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.image_data import read_images
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.text_columns import read_corpus

LOOSE = ["leaked_records=1"]


def pictures(root: Path, *names: str, count: int = 12, ending: str = "png") -> None:
    """Pictures of noise in each of some folders."""
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = np.random.default_rng([*name.encode(), number]).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.{ending}")


def classes_of(where: Any, *words: str) -> tuple[Counter[str], Any]:
    """How many images there are of each class, and the data set."""
    data = read_images(infer(str(where), [*LOOSE, *words])[0])
    return sum((Counter(own) for own in data.report["classes"].values()), Counter()), data


TWO = dict.fromkeys(("cat", "dog"), 24)


@pytest.mark.costly(4)
@pytest.mark.parametrize(
    ("folders", "counts", "names"),
    [
        (["train/cat", "train/dog", "test/cat", "test/dog", "misc"], TWO, ["train", "test"]),
        (["Training/cat", "Training/dog", "Testing/cat", "Testing/dog"], TWO, ["train", "test"]),
        (["train/cat", "train/dog", "raw/cat", "raw/dog"], dict.fromkeys(("cat", "dog"), 12), ["train"]),
        (
            ["train/train", "train/car", "test/train", "test/car"],
            dict.fromkeys(("car", "train"), 24),
            ["train", "test"],
        ),
        (["train", "test", "default"], dict.fromkeys(("train", "test", "default"), 12), ["train"]),
        (["cat/2021", "cat/2022", "dog/2021", "dog/2022"], TWO, ["train"]),
        (["cat", "cat/more", "dog", "dog/more"], TWO, ["train"]),
        (["animals/cat", "animals/dog"], dict.fromkeys(("cat", "dog"), 12), ["train"]),
    ],
)
def test_folders_are_classes_or_splits(folders: list[str], counts: Any, names: list[str], tmp_path: Path) -> None:
    pictures(tmp_path, *folders)
    assert splits(str(tmp_path)) == names and classes_of(tmp_path)[0] == counts


def test_folders_that_may_be_either_are_a_question(tmp_path: Path) -> None:
    pictures(tmp_path, "train/cat", "train/dog", "unlabelled")
    with raises_sentence("train", "unlabelled"):
        infer(str(tmp_path))
    pictures(tmp_path / "segments", "images", "masks")
    with raises_sentence("images", "masks"):
        infer(str(tmp_path / "segments"))


def test_recordings_alone_are_said_to_need_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    with raises_sentence(".wav 1", "recordings"):
        infer(str(tmp_path))


def test_a_test_split_without_classes_is_left_out(tmp_path: Path) -> None:
    pictures(tmp_path, "train/cat", "train/dog", "val/cat", "val/dog", "test")
    counts, data = classes_of(tmp_path)
    assert counts == TWO and list(data.splits) == ["validation"] and data.read.left_out.total() == 12


@pytest.mark.parametrize("alike", [("Cat", "cat"), ("caf\u00e9", "cafe\u0301"), ("dog ", "dog")])
def test_classes_that_look_alike_are_said(alike: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    pictures(tmp_path, *alike, "fish")
    assert len(classes_of(tmp_path)[0]) == 3
    said = capsys.readouterr().err
    assert all(ascii(name) in said for name in alike) and "fish" not in said


def test_files_that_are_left_out_are_counted(tmp_path: Path) -> None:
    pictures(tmp_path / "x", "cat", "dog", ".ipynb_checkpoints")
    pictures(tmp_path, "fish")
    (tmp_path / "x" / "fish").symlink_to(tmp_path / "fish")  # a link to a folder is one
    (tmp_path / "x" / "round").symlink_to(tmp_path / "x")
    (tmp_path / "x" / "cat" / "gone.png").symlink_to("nowhere.png")
    for name in ("__MACOSX/._0.png", "cat/.DS_Store", "cat/Thumbs.db", "dog/desktop.ini", "dog/a.heic"):
        (tmp_path / "x" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "x" / name).touch()
    (tmp_path / "x" / "bird").mkdir()
    (tmp_path / "x" / "README.txt").write_text("About these pictures.")
    counts, data = classes_of(tmp_path / "x")
    assert counts == dict.fromkeys(("cat", "dog", "fish"), 12) and data.read.files == {".png": 36}
    assert data.read.left_out == {"hidden": 16, "broken link": 1, ".heic": 1, ".txt": 1, "empty folder": 1}
    os.rename(tmp_path / "x" / "cat" / "0.png", os.fsencode(tmp_path) + b"/x/cat/caf\xe9.png")
    with raises_sentence("UTF-8"):
        read(str(tmp_path / "x"))


def table(root: Path, form: str, count: int = 30, ending: str = "png") -> Path:
    """A table of classes that names pictures in a form with their number."""
    pictures(root, "files", count=count, ending=ending)
    rows = [{"file_name": form.format(n), "label": "cat" if n % 2 else "dog"} for n in range(count)]
    return write_rows(root / "metadata.csv", rows)


@pytest.mark.parametrize(
    "form", ["files/{}.png", "files/{}.png  ", "./files/{}.png", "files\\{}.png", "../{}/files/{}.png"]
)
def test_tables_name_files_as_systems_do(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, form.replace("{}", tmp_path.name, 1) if form.count("{}") > 1 else form)
    monkeypatch.chdir(tmp_path)
    for where in (".", "metadata.csv", str(tmp_path)):
        counts, data = classes_of(where)
        assert counts == {"cat": 15, "dog": 15} and data.read.files == {".csv": 1, ".png": 30}
    assert infer(".")[0].name == tmp_path.name


def test_one_odd_name_is_one_bad_record(tmp_path: Path) -> None:
    where = table(tmp_path, "files/{}.png")
    odd = {"files/7.png": "IMG_7", "files/8.png": "files/8.heic", "files/9.png": "https://example.org/9.png"}
    for name, other in odd.items():
        where.write_text(where.read_text().replace(f"\n{name}", f"\n{other}"))
    counts, data = classes_of(tmp_path, "bad_records=0.1")
    assert counts.total() == 27 and [line["row"] for line in data.invalid_records.skipped] == [9, 10, 11]
    assert data.read.left_out == {".png": 3}


@pytest.mark.parametrize(
    ("ending", "medium"), [("heic", "image"), ("svg", "image"), ("m4a", "audio"), ("mp4", "audio")]
)
def test_files_that_cannot_be_opened_are_no_texts(ending: str, medium: str, tmp_path: Path) -> None:
    rows = [{"file": f"{n}.{ending}", "text": f"words {n} {n}"} for n in range(30)]
    columns = read(str(write_rows(tmp_path / "x.csv", rows))).column_names
    assert columns[:2] == ["text", medium] or columns[:2] == [medium, "text"]


def test_pictures_that_no_table_names_are_a_question(tmp_path: Path) -> None:
    pictures(tmp_path, "cat", "dog")
    for count in (40, 60):
        write_rows(tmp_path / "classes.csv", [{"id": n, "text": f"a thing called {n} {n}"} for n in range(count)])
        with raises_sentence(".png 24", "file_name") if count == 40 else nullcontext():
            assert infer(str(tmp_path))[1]["task"] == "causal-lm"
    assert read_corpus(infer(str(tmp_path), LOOSE)[0]).read.left_out == {".png": 24}


def test_parquet_names_and_nests_files(tmp_path: Path) -> None:
    pictures(tmp_path, "files", count=30)
    for name in ("nested.jsonl", "stored.parquet"):
        own = {"path": "files/{}.png", **({"bytes": None} if name == "stored.parquet" else {"width": 8})}
        text = [json.loads(json.dumps({"image": own, "label": "ab"[n % 2]}).replace("{}", str(n))) for n in range(30)]
        assert classes_of(write_rows(tmp_path / name, text))[0] == {"a": 15, "b": 15}
