"""Energy is what the processors counted: all of them, across the end of their range, and nothing where none is read."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from qkv.scripts.training import energy as module
from qkv.scripts.training.energy import Energy


def count(root: Path, folder: str, name: str, value: int) -> None:
    """Set a counter as Linux shows it."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for file, text in {"name": name, "energy_uj": value, "max_energy_range_uj": 1_000_000_000}.items():
        (root / folder / file).write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    count(tmp_path, "intel-rapl:0", "package-0", 999_000_000)
    count(tmp_path, "intel-rapl:1", "package-1", 5)
    count(tmp_path, "intel-rapl:2", "psys", 7)
    count(tmp_path, "intel-rapl:0:0", "core", 9)
    return tmp_path


def test_packages_are_added_up_and_their_parts_not_counted_twice(root: Path) -> None:
    energy = Energy(root)
    count(root, "intel-rapl:0", "package-0", 999_500_000)
    count(root, "intel-rapl:1", "package-1", 2_000_005)
    count(root, "intel-rapl:2", "psys", 900_000_000)
    count(root, "intel-rapl:0:0", "core", 900_000_000)
    assert energy.read() == {"training_j": 2.5, "counters": ["package-0", "package-1"]}


def test_a_counter_that_begins_again_goes_on(root: Path) -> None:
    energy = Energy(root)
    for value in (1_000_000, 999_000_000, 3_000_000):  # twice past its end
        count(root, "intel-rapl:0", "package-0", value)
        energy.note()
    assert energy.read()["training_j"] == pytest.approx(2 + 998 + 4)


def test_nothing_is_said_where_nothing_can_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Energy(root / "nothing").read() is None
    read_text = Path.read_text

    def refuse(path: Path, *arguments, **options) -> str:
        if path.name == "energy_uj":
            raise PermissionError(path)
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert Energy(root).read() is None


@pytest.mark.parametrize(("device", "processes", "measured"), [("cpu", 2, True), ("cuda", 2, False), ("cpu", 4, False)])
def test_a_training_is_measured_where_these_processors_did_all_of_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, device: str, processes: int, measured: bool
) -> None:
    monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(module, "POWERCAP", root)
    accelerator = SimpleNamespace(num_processes=processes, device=SimpleNamespace(type=device))
    assert (Energy.of(accelerator).read() is not None) == measured
