"""Checkpoints: whole or not there whenever the process dies, damage is found, nothing that is needed is removed."""

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_training
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
    """What no `except` of ours catches, like SIGKILL."""


@pytest.fixture
def die(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Dies at the given system call of a save, before it or, where there is a half, in its middle."""
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


def test_whenever_a_save_dies_the_newest_is_complete(tmp_path: Path, die: Callable[[int], list[int]]) -> None:
    found = []
    for call in range(1, 100):
        die(-1)
        folder = tmp_path / str(call)
        checkpoints = filled(folder, 1, 2, keep=2)
        left = die(call)
        try:
            save(checkpoints, 3)
        except Death:
            left = die(-1)
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


DAMAGE = {
    "is missing": lambda path: path.unlink(),
    "bytes": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "bytes ": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "has other content": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
}


@pytest.mark.parametrize("file", ["a.safetensors", "b.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_named_and_skipped(tmp_path: Path, file: str, damage: str) -> None:
    checkpoints = filled(tmp_path, 1, 2)
    DAMAGE[damage](checkpoints.path(2) / file)
    step, said = checkpoints.newest()
    assert step == 1 and content(checkpoints, step) == 1
    assert said.startswith(f"checkpoint {checkpoints.path(2)} is incomplete ({file} ")
    assert damage.strip() in said and said.endswith("; resuming from step-000001")


@pytest.mark.parametrize(
    "text", [None, "", "{}", '{"files": {}}', '{"files": {"b.json": {"bytes": 3}}}', '{"files":', "[]", "\xff"]
)
def test_a_folder_without_a_sound_manifest_is_skipped(tmp_path: Path, text: str | None) -> None:
    checkpoints = filled(tmp_path, 1, 2)
    manifest = checkpoints.path(2) / "manifest.json"
    manifest.unlink()
    if text is not None:
        manifest.write_bytes(text.encode("latin-1"))
    assert checkpoints.newest()[0] == 1
    assert "is incomplete (manifest.json is missing or damaged)" in checkpoints.newest()[1]


def test_when_all_are_damaged_nothing_is_thrown_away(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 1, 2)
    for step in (1, 2):
        (checkpoints.path(step) / "b.json").unlink()
    with pytest.raises(
        ValueError, match=r"step-000002 is incomplete .*step-000001 is incomplete .*; no other is left: re"
    ):
        checkpoints.newest()
    assert names(tmp_path) == ["step-000001", "step-000002"]


def test_nothing_is_the_newest_of_nothing(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() == (None, "")


def test_the_newest_are_kept_and_the_best_of_each(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    for step, best in [(1, 1), (2, 1), (3, 3), (4, 3)]:
        save(checkpoints, step, best)
    assert names(tmp_path) == ["step-000003", "step-000004"]
    save(checkpoints, 5, 3)
    assert names(tmp_path) == ["step-000003", "step-000004", "step-000005"]
    save(checkpoints, 6, 6)
    # From step 5, should 6 be lost, the best is 3 again.
    assert names(tmp_path) == ["step-000003", "step-000005", "step-000006"]
    save(checkpoints, 7, 6)
    assert names(tmp_path) == ["step-000006", "step-000007"]


def test_what_came_after_the_step_that_was_resumed_goes(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 1, 2, 5, 9)
    (checkpoints.path(9) / "b.json").unlink()
    (tmp_path / "notes.txt").touch()
    save(checkpoints, 6)
    assert names(tmp_path) == ["notes.txt", "step-000001", "step-000002", "step-000005", "step-000006"]


def test_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 1, 2)
    (checkpoints.path(2) / "b.json").unlink()
    save(checkpoints, 2)
    assert checkpoints.newest() == (2, "")


def test_a_step_of_a_million_counts_as_more(tmp_path: Path) -> None:
    assert filled(tmp_path, 999_999, 1_000_000).newest() == (1_000_000, "")


def no_space(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_permission(*arguments: object, **options: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("name", ["mkdir", "write_text", "rename"])
@pytest.mark.parametrize(
    ("fault", "words"), [(no_space, "No space left on device"), (no_permission, "Permission denied")]
)
def test_what_cannot_be_written_is_one_sentence_and_leaves_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[..., None], words: str
) -> None:
    checkpoints = filled(tmp_path, 1, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, name, fault)
        with pytest.raises(OSError) as error:
            save(checkpoints, 2)
    assert str(error.value).startswith(f"the checkpoint of step 2 could not be written to {tmp_path}: {words}; ")
    assert names(tmp_path) == ["step-000001"] and checkpoints.newest() == (1, "")
    save(checkpoints, 2)
    assert checkpoints.newest() == (2, "")


def test_a_file_that_may_not_grow_is_told_of_by_the_library_and_by_us(tmp_path: Path) -> None:
    """The limit stands for a full disk: the operating system refuses in the middle of the weights."""
    checkpoints = filled(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OSError, match=f"step 2 could not be written to {tmp_path}: File too large; "):
            save(checkpoints, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["step-000001"]


def test_in_the_background_the_next_waits_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, 5, background=True)
    save(checkpoints, 1)
    save(checkpoints, 2)
    checkpoints.wait()
    assert names(tmp_path) == ["step-000001", "step-000002"] and not checkpoints.failed()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", no_space)
        save(checkpoints, 3)
        with pytest.raises(OSError, match="of step 3 could not be written"):
            save(checkpoints, 4)
    assert checkpoints.newest() == (2, "")


def test_a_training_that_dies_in_any_save_ends_the_same(tmp_path: Path, die: Callable[[int], list[int]]) -> None:
    tiny_training.go(tmp_path / "whole")
    expected = tiny_training.result(tmp_path / "whole")
    for call in (40, 70, 100):
        die(call)
        with pytest.raises(Death):
            tiny_training.go(tmp_path / str(call))
        die(-1)
        assert tiny_training.go(tmp_path / str(call)).startswith("resuming from")
        assert tiny_training.result(tmp_path / str(call)) == expected
