"""Data are found where a user says: files, folders, what datasets saved, and the Hub; as a table or as a stream."""

import os
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict
from PIL import Image

from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.examples import ORIGIN
from qkv.scripts.data.loading import identity, read, splits

WORDS = ["one", "two", "three"]
both = pytest.mark.parametrize("streaming", [False, True])


def write(path: Path, words: list[str]) -> Path:
    """The words as records of a file."""
    return write_rows(path, [{"text": word, "n": place} for place, word in enumerate(words)])


def words(where: Path | str, **options: object) -> list[str]:
    return [record["text"] for record in read(str(where), **options)]


@both
@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson", "x.parquet", "x.csv", "x.txt", "x.JSONL"])
def test_every_kind_of_file_is_read(tmp_path: Path, name: str, streaming: bool) -> None:
    path = write(tmp_path / name, WORDS)
    found = list(read(str(path), streaming=streaming))
    assert [record["text"] for record in found] == WORDS
    assert all(record.keys() >= ORIGIN.keys() and record["_invalid"] is None for record in found)
    if path.suffix != ".txt":
        assert [int(record["n"]) for record in found] == [0, 1, 2]  # of CSV the texts that stand there
        assert set(next(iter(read(str(path), columns=["text"], streaming=streaming)))) == {"text", *ORIGIN}


@pytest.mark.parametrize(
    "files",
    [
        {"train": "train.jsonl", "validation": "validation.jsonl", "test": "test.jsonl"},
        {"train": "a/train-00000-of-00002.parquet", "validation": "a/val_1.parquet", "test": "b/eval.parquet"},
        {"train": "train/x.jsonl", "validation": "dev/x.jsonl", "test": "test/x.jsonl"},
        {"train": "my.train.csv", "test": "my.test.csv"},
        {"train": "words.txt", "test": "test.txt"},
        {"train": "train.txt", "test": "a/test.txt"},
        {"test": "test.txt"},
    ],
)
def test_splits_are_found_by_the_names_of_files_and_folders(tmp_path: Path, files: dict[str, str]) -> None:
    for split, name in files.items():
        write(tmp_path / name, [split])
    (tmp_path / ".hidden").mkdir()
    write(tmp_path / ".hidden" / "train.jsonl", ["hidden"])
    (tmp_path / "README.md").write_text("words")
    if "train.txt" in files.values():
        write(tmp_path / "LICENSE.txt", ["of no split"])
    assert splits(str(tmp_path)) == list(files)
    assert {split: words(tmp_path, split=split) for split in files} == {split: [split] for split in files}
    if "validation" not in files:
        with pytest.raises(ValueError, match="has no validation split; it has"):
            read(str(tmp_path), split="validation")


def test_a_table_is_kept_until_its_file_changes(tmp_path: Path, no_cache: Path) -> None:
    path = write(tmp_path / "x.jsonl", WORDS)
    assert words(path) == words(path) == WORDS
    assert len(list(no_cache.rglob("*.arrow"))) == 1
    write(path, ["changed"])
    assert words(path) == ["changed"]
    times = path.stat()
    write(path, ["chanted"])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as copying programs do
    assert words(path) == ["chanted"]
    path = write_rows(tmp_path / "pictures" / "metadata.csv", [{"file_name": "1.png", "label": "x"}])
    picture(path.with_name("1.png"), 1)
    before = read(str(path))._fingerprint
    assert read(str(path))._fingerprint == before
    picture(path.with_name("1.png"), 200)
    assert read(str(path))._fingerprint != before


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (3, 2), shade).save(path)


@both
def test_folders_of_pictures_are_labels_in_every_split_alike(tmp_path: Path, streaming: bool) -> None:
    for number, name in enumerate(["train/dog/1.png", "train/cat/x.JPG", "train/cat/2.jpeg", "test/dog/1.png"]):
        picture(tmp_path / name, number)
    train, test = (read(str(tmp_path), split=split, streaming=streaming) for split in ("train", "test"))
    assert train.features["label"] == test.features["label"] == ClassLabel(names=["cat", "dog"])
    named = [(Path(record["image"]["path"]).name, record["label"]) for record in train]
    assert named == [("2.jpeg", 0), ("x.JPG", 0), ("1.png", 1)]
    assert [record["label"] for record in test] == [1]


@both
def test_what_datasets_saved_is_read(tmp_path: Path, streaming: bool) -> None:
    table = Dataset.from_dict({"text": WORDS})
    table.save_to_disk(tmp_path / "one")
    DatasetDict({"train": table, "test": table.select([0])}).save_to_disk(tmp_path / "many")
    assert splits(str(tmp_path / "one")) == ["train"] and splits(str(tmp_path / "many")) == ["train", "test"]
    assert words(tmp_path / "one", streaming=streaming) == WORDS
    assert words(tmp_path / "many", split="test", streaming=streaming) == ["one"]
    with raises_sentence("validation", "train"):
        read(str(tmp_path / "one"), split="validation", streaming=streaming)
    Dataset.from_dict({"text": []}).save_to_disk(tmp_path / "empty")
    with raises_sentence("empty", "records"):
        read(str(tmp_path / "empty"), streaming=streaming)


def test_data_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").touch()
    with raises_sentence("jsonl"):
        read(str(tmp_path))
    write(tmp_path / "words.jsonl", WORDS)
    with raises_sentence("word.jsonl", "words.jsonl"):
        read(str(tmp_path / "word.jsonl"))
    with raises_sentence("data='no/such'"):
        read("no/such")
    with raises_sentence("'txet'", "'text'"):
        read(str(tmp_path), columns=["txet"])
    write(tmp_path / "b.csv", WORDS)
    with raises_sentence(".csv", ".jsonl"):
        read(str(tmp_path))


def test_the_identity_of_files_is_their_content_not_their_place(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a" / "x.jsonl", WORDS), write(tmp_path / "b" / "x.jsonl", WORDS)
    assert identity(str(one)) == identity(str(two))
    before, times = identity(str(two)), two.stat()
    two.write_bytes(two.read_bytes()[:-2] + b"0}")
    os.utime(two, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert identity(str(one)) == before != identity(str(two))


# Tables and the files beside them --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("column", ["file_name", "image"])
def test_paths_are_relative_to_the_table(
    tmp_path: Path, suffix: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "pictures").mkdir(parents=True)
    for number in range(2):
        Image.new("L", (2, 2), number).save(tmp_path / "data" / "pictures" / f"ü{number}.png")
    rows = [{column: f"pictures/ü{number}.png", "label": "ab"[number]} for number in range(2)]
    path = write_rows(tmp_path / "data" / f"metadata{suffix}", rows)
    monkeypatch.chdir(tmp_path)
    for where in (str(path), "data"):
        for streaming in (False, True):
            found = list(read(where, columns=["image", "label"], streaming=streaming))
            assert [Path(row["image"]["path"]).name for row in found] == ["ü0.png", "ü1.png"]
            assert all(Path(row["image"]["path"]).is_file() for row in found)


def test_a_table_of_recordings_and_one_that_only_mentions_files(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "metadata.csv", [{"file_name": "a/1.flac", "text": "x"}])
    assert read(str(path))["audio"][:] == [str(tmp_path / "a/1.flac")]
    path = write_rows(tmp_path / "x.csv", [{"text": "a.png"}, {"text": "see b"}])
    assert read(str(path))["text"][:] == ["a.png", "see b"]
