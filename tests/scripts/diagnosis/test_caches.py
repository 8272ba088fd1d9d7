"""Caches: their size, whether they can be written, what was cut off, and the room on their disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from qkv.scripts.diagnosis import caches
from qkv.scripts.diagnosis.caches import Cache, cache, check_caches, count_bytes, look_at_caches

WHOLE = Cache("models", Path("/c"), "HF_HOME", 10, 0, counted=True, free=10**12, writable=True)


def test_bytes_are_those_of_files_and_not_of_links(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "a").write_bytes(b"12345")
    (tmp_path / "blobs" / "b.incomplete").write_bytes(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "blobs" / "a")
    assert count_bytes(tmp_path) == (8, 3, True)
    assert count_bytes(tmp_path, patience=-1.0) == (0, 0, False)


def test_a_cache_that_is_not_there_is_judged_by_the_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(caches.os, "access", lambda path, mode: asked.append(path))
    own = cache("models", tmp_path / "a" / "b", "HF_HOME")
    assert asked == [tmp_path] and not own.writable and own.row() == f"{tmp_path}/a/b: not yet there, not writable"


def test_all_caches_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "qkv").mkdir()
    (tmp_path / "qkv" / "file").write_bytes(b"1" * 2000)
    looked = look_at_caches()
    assert [own.name for own in looked] == ["models of the Hub", "data sets", "torch.compile", "qkv"]
    assert looked[-1].row() == f"{tmp_path}/qkv: 2 kB"


@pytest.mark.parametrize(
    ("fields", "offline", "kinds"),
    [
        ({}, False, []),
        ({"writable": False}, False, ["broken"]),
        ({"writable": False}, True, ["note"]),
        ({"incomplete": 5}, False, ["note"]),
        ({"free": 10**9}, False, ["slow"]),
    ],
)
def test_each_fault_is_a_finding(fields: dict, offline: bool, kinds: list[str]) -> None:
    assert [finding.kind for finding in check_caches([replace(WHOLE, **fields)], offline=offline)] == kinds


def test_a_full_disk_is_told_once() -> None:
    full = [replace(WHOLE, free=10, name=name) for name in ("models", "data")]
    (finding,) = check_caches(full, offline=False)
    assert finding.what == "10 B are free on the disk with the cache of models, data"
