"""Checkpoints appear whole whenever the process dies; damage is found, and no checkpoint that is needed is removed."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from qkv.scripts.training import checkpoint
from qkv.scripts.training.checkpoint import Checkpoints


def save(checkpoints: Checkpoints, step: int, best: int | None = None) -> None:
    tensors = {"a.safetensors": {"x": torch.full((1000,), float(step))}}
    checkpoints.save(step, tensors, {"b.json": f"[{step}]"}, best)


def filled(folder: Path, *steps: int, keep: int = 5) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        save(checkpoints, step)
    return checkpoints


def content(checkpoints: Checkpoints, step: int) -> float:
    folder = checkpoints.path(step)
    assert json.loads((folder / "b.json").read_text()) == [step]
    return load_file(folder / "a.safetensors")["x"][0].item()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Death(BaseException):
    """An error that no `except` of ours catches, like SIGKILL."""


@pytest.fixture
def die(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Die at the n-th system call of a save, before it or, where it can be halved, in its middle."""
    left = [-1]

    def patch(owner: object, name: str, half: Callable[..., object] | None = None) -> None:
        original = getattr(owner, name)

        def mortal(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                if half is not None:
                    half(original, *arguments)
                raise Death
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, mortal)

    patch(checkpoint, "save_file", lambda save, tensors, path: path.write_bytes(b"\x08\0\0\0"))
    patch(Path, "write_text", lambda write, path, text: write(path, text[: len(text) // 2]))
    for owner, name in ((Path, "mkdir"), (Path, "rename"), (os, "fsync"), (os, "unlink"), (os, "rmdir")):
        patch(owner, name)

    def at(call: int) -> list[int]:
        left[0] = call
        return left

    yield at
    left[0] = -1


def test_newest_is_complete_whenever_a_save_dies(tmp_path: Path, die: Callable[[int], list[int]]) -> None:
    found = []
    for call in range(1, 100):
        die(-1)
        folder = tmp_path / str(call)
        checkpoints = filled(folder, 1, 2, keep=2)
        left = die(call)
        try:
            save(checkpoints, 3)
        except Death:
            die(-1)
        else:
            assert left[0] > 0 and call > 15
            break
        again = Checkpoints(folder, 2)
        step, said = again.newest()
        assert step in (2, 3) and said == "" and content(again, step) == step
        assert all(name.startswith("step-") for name in names(folder))
        found.append(step)
        save(again, 4)
        assert again.newest() == (4, "") and len(names(folder)) == 2
    assert found == sorted(found) and {2, 3} == set(found)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "changed": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
}


@pytest.mark.parametrize("file", ["a.safetensors", "b.json", "manifest.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_skipped(tmp_path: Path, file: str, damage: str) -> None:
    checkpoints = filled(tmp_path, 1, 2)
    DAMAGE[damage](checkpoints.path(2) / file)
    step, said = checkpoints.newest()
    assert step == 1 and content(checkpoints, step) == 1
    assert str(checkpoints.path(2)) in said and file in said and "step-000001" in said


def test_nothing_is_removed_where_all_are_damaged(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() == (None, "")
    checkpoints = filled(tmp_path, 1, 2)
    for step in (1, 2):
        (checkpoints.path(step) / "b.json").unlink()
    with pytest.raises(ValueError, match=r"step-000002 .*step-000001 "):
        checkpoints.newest()
    assert names(tmp_path) == ["step-000001", "step-000002"]


def test_newest_and_their_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    kept = {5: (3, 4, 5), 6: (3, 5, 6), 7: (6, 7)}  # the best of step 5, should 6 be lost, is 3
    for step, best in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6)]:
        save(checkpoints, step, best)
        if step in kept:
            assert names(tmp_path) == [f"step-{number:06}" for number in kept[step]]


def test_steps_after_the_resumed_one_are_removed(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 1, 2, 5, 9)
    (checkpoints.path(9) / "b.json").unlink()
    (tmp_path / "notes.txt").touch()
    save(checkpoints, 6)
    assert names(tmp_path) == ["notes.txt", "step-000001", "step-000002", "step-000005", "step-000006"]
    (checkpoints.path(6) / "b.json").unlink()
    save(checkpoints, 6)
    assert checkpoints.newest() == (6, "")
    assert filled(tmp_path / "large", 999_999, 1_000_000).newest() == (1_000_000, "")


@pytest.mark.parametrize("name", ["mkdir", "write_text", "rename", "save_file"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_failed_write_leaves_earlier_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        if name == "save_file":
            raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")
        raise OSError(number, os.strerror(number))

    checkpoints = filled(tmp_path, 1, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint if name == "save_file" else Path, name, fail)
        with pytest.raises(OSError, match=f"step 2 .*{tmp_path}.*{os.strerror(number)}"):
            save(checkpoints, 2)
    assert names(tmp_path) == ["step-000001"] and checkpoints.newest() == (1, "")
    save(checkpoints, 2)
    assert checkpoints.newest() == (2, "")
