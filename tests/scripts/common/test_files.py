"""Durable: every file and folder is forced to the disk, and no handle is left open."""

import os
from pathlib import Path

import pytest

from qkv.scripts.common.files import make_durable, sync


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
    def fail(handle: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no space"):
        sync(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
