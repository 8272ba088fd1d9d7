"""Local files: parallel texts, and tables that name the images and recordings beside them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from errors import raises_sentence
from qkv.scripts.common.environment import data_name, local_files
from qkv.scripts.data.loading import identity, read, splits


def parallel(folder: Path, names: tuple[str, str], sizes: tuple[int, int] = (3, 3)) -> list[Path]:
    """Two files of lines."""
    paths = [folder / name for name in names]
    for path, size in zip(paths, sizes, strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{path.stem} {line}\n" for line in range(size)))
    return paths


def test_two_files_are_sources_and_targets(tmp_path: Path) -> None:
    one, other = parallel(tmp_path, ("ü.txt", "b.txt"))
    where = f"{one},{other}"
    assert local_files(where) == [one, other] and splits(where) == ["train"] and data_name(where) == "ü.txt,b.txt"
    expected = [(f"ü {line}", f"b {line}") for line in range(3)]
    for streaming in (False, True):
        assert [(row["source"], row["target"]) for row in read(where, streaming=streaming)] == expected
    before = identity(where)
    other.write_text("b 0\nb 1\nchanged\n")
    assert read(where)["target"][2] == "changed" and identity(where) != before


def test_both_files_have_the_encoding_that_is_given(tmp_path: Path) -> None:
    one, other = parallel(tmp_path, ("a.txt", "b.txt"))
    for path in (one, other):
        path.write_bytes("ä\n".encode("latin-1"))
    (row,) = read(f"{one},{other}", encoding="latin-1")
    assert (row["source"], row["target"]) == ("ä", "ä")


def test_a_folder_names_its_sides(tmp_path: Path) -> None:
    for split in ("train", "test"):
        parallel(tmp_path, (f"{split}.target.txt", f"{split}.source.txt"))
    assert splits(str(tmp_path)) == ["train", "test"]
    assert read(str(tmp_path), split="test")[0]["source"] == "test.source 0"


def test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    one, other = parallel(tmp_path, ("a.txt", "b.txt"), (3, 5))
    with raises_sentence("a.txt", "3", "b.txt", "5"):
        read(f"{one},{other}")


def table(path: Path, rows: list[dict[str, object]]) -> Path:
    """Rows in the form that the ending says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix in (".csv", ".tsv"):
        mark = "," if path.suffix == ".csv" else "\t"
        path.write_text(
            "".join(mark.join(map(str, row)) + "\n" for row in [list(rows[0]), *(r.values() for r in rows)])
        )
    else:
        lines = [json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) if path.suffix == ".jsonl" else f"[{','.join(lines)}]")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("column", ["file_name", "image"])
def test_paths_are_relative_to_the_table(
    tmp_path: Path, suffix: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "pictures").mkdir(parents=True)
    for number in range(2):
        Image.new("L", (2, 2), number).save(tmp_path / "data" / "pictures" / f"ü{number}.png")
    rows = [{column: f"pictures/ü{number}.png", "label": "ab"[number]} for number in range(2)]
    path = table(tmp_path / "data" / f"metadata{suffix}", rows)
    monkeypatch.chdir(tmp_path)
    for where in (str(path), "data"):
        for streaming in (False, True):
            found = list(read(where, columns=["image", "label"], streaming=streaming))
            assert [Path(row["image"]["path"]).name for row in found] == ["ü0.png", "ü1.png"]
            assert all(Path(row["image"]["path"]).is_file() for row in found)


def test_recordings_are_relative_to_the_table(tmp_path: Path) -> None:
    path = table(tmp_path / "metadata.csv", [{"file_name": "a/1.wav", "text": "x"}])
    assert read(str(path))["audio"][:] == [str(tmp_path / "a/1.wav")]


def test_a_picture_that_changes_makes_another_table(tmp_path: Path) -> None:
    Image.new("L", (2, 2)).save(tmp_path / "1.png")
    path = table(tmp_path / "metadata.csv", [{"file_name": "1.png", "label": "x"}])
    before = read(str(path))._fingerprint
    assert read(str(path))._fingerprint == before
    Image.new("L", (3, 3)).save(tmp_path / "1.png")
    assert read(str(path))._fingerprint != before


def test_texts_that_mention_files_are_texts(tmp_path: Path) -> None:
    path = table(tmp_path / "x.csv", [{"text": "a.png"}, {"text": "see b"}])
    assert read(str(path))["text"][:] == ["a.png", "see b"]
