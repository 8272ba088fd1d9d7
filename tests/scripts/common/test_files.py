"""Durable: every file and folder is forced to the disk, and no handle is left open; a full disk leaves what was there."""

import errno
import os
from pathlib import Path
from unittest import mock

import pytest
from safetensors import SafetensorError

from errors import raises_sentence
from qkv.scripts.common.files import RECORD, full_disk_named, make_durable, replacing, staged, sync, write_atomically


def test_every_file_and_folder_is_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a", "inner/b"):
        (tmp_path / name).write_text(name)
    forced = []
    monkeypatch.setattr(os, "fsync", lambda handle: forced.append(os.readlink(f"/proc/self/fd/{handle}")))
    make_durable(tmp_path)
    assert sorted(forced) == sorted(map(str, (tmp_path, tmp_path / "a", tmp_path / "inner", tmp_path / "inner" / "b")))
    assert forced[-1] == str(tmp_path)


def test_no_handle_is_left_where_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError("no space")))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no space"):
        sync(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
TOLD = ("No space left on device", "bytes are free there", "make room, and give the same command again")
# What libraries raise on a full disk, where they do not leave it to Python.
OTHERS = [
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    Exception("No space left on device (os error 28)"),  # tokenizers
    OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    OSError(errno.EFBIG, os.strerror(errno.EFBIG)),
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_the_disk_has_no_room_for_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "a.json", Path.write_bytes
    path.write_text("old")

    def half(path: Path, data: bytes) -> None:
        write(path, data[: len(data) // 2])
        raise FULL

    monkeypatch.setattr(Path, "write_bytes", half)
    with raises_sentence(str(path), *TOLD, error=OSError):
        write_atomically(path, "newer\n")
    assert path.read_text() == "old" and names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("error", [FULL, *OTHERS], ids=lambda error: type(error).__name__)
def test_a_full_disk_is_named_whoever_finds_it(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=f"{tmp_path} could not be written: .*; it takes more, and [0-9,]+ bytes are free"
    ):
        with full_disk_named(tmp_path):
            raise error
    with pytest.raises(OSError, match="could not be written: ") as caught, staged(tmp_path / "out"):
        raise error
    assert str(caught.value).count("make room") == 1 and names(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError("a"), PermissionError(errno.EACCES, "no"), OSError("a sentence")])
def test_other_errors_stay_what_they_are(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught, full_disk_named(tmp_path):
        raise error
    assert caught.value is error


def test_files_that_a_killed_process_staged_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".out.partial" / "out").mkdir(parents=True)
    (tmp_path / ".out.partial" / "out" / "half").touch()
    (tmp_path / "out").mkdir()
    with staged(tmp_path / "out") as folder:
        (folder / "a").touch()
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["a"]


def test_of_two_processes_that_stage_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    with staged(tmp_path / "out") as first:
        (first / "a").write_text("first")
        with raises_sentence(str(tmp_path / "out"), error=FileExistsError), staged(tmp_path / "out"):
            pass
    assert (tmp_path / "out" / "a").read_text() == "first" and names(tmp_path) == ["out"]


def test_files_of_a_run_are_replaced_whole_after_its_record_is_gone(tmp_path: Path) -> None:
    for name in ("a", "kept", RECORD):
        (tmp_path / name).write_text("old")
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "half").touch()
    with replacing(tmp_path) as folder:
        (folder / "inner").mkdir()
        for name in ("a", "inner/b"):
            (folder / name).write_text("new")
        assert (tmp_path / "a").read_text() == "old" and (tmp_path / RECORD).exists()
    assert names(tmp_path) == ["a", "inner", "kept"]
    assert [(tmp_path / name).read_text() for name in ("a", "inner/b", "kept")] == ["new", "new", "old"]


def test_a_run_that_the_disk_has_no_room_for_is_as_it_was(tmp_path: Path) -> None:
    for name in ("a", RECORD):
        (tmp_path / name).write_text("old")
    with raises_sentence(str(tmp_path), *TOLD, error=OSError):
        with replacing(tmp_path) as folder:
            (folder / "a").write_text("ne")
            raise FULL
    assert names(tmp_path) == ["a", RECORD] and (tmp_path / "a").read_text() == "old"
