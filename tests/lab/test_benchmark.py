"""`scripts/lab/benchmark.py`: measures what is asked for, writes record, page and plot, and keeps what was measured before."""

import json
from pathlib import Path

import pytest

from qkv.scripts.lab import benchmark
from qkv.scripts.lab.__main__ import main
from qkv.scripts.lab.benchmarking.equality import UnequalError
from tiny_workloads import MACHINE, measured, tiny

WORKLOADS = ("encode-small-128", "decode-small-1", "load")
LAPS = {"qkv": [1.0, 2.0], "transformers": [4.0, 4.0]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny workloads on a machine whose limits are known."""
    monkeypatch.setattr(benchmark, "read_workloads", lambda: {name: tiny(name) for name in WORKLOADS})
    monkeypatch.setattr(benchmark, "describe", lambda device, dtype: MACHINE | {"dtype": str(dtype)[6:]})


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measurements that take no time; what was measured."""
    names: list[str] = []

    def measure(title, workload, settings):
        names.append(workload.name)
        return measured(LAPS)

    monkeypatch.setattr(benchmark, "measure", measure)
    return names


def test_a_workload_is_measured_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "times.json"
    words = ["encode", "--batch=5", "--contenders", "qkv", "--rounds=2", "--device=cpu", f"--json={file}"]
    assert main(["benchmark", *words]) == 0
    printed = capsys.readouterr()
    assert "encode-small-128" in printed.out and "transformers" in printed.out and "6/6" in printed.err
    record = json.loads(file.read_text())
    workload = record["workloads"]["encode-small-128"]
    assert len(workload["contenders"]["qkv"]["seconds"]) == workload["rounds"] == 2 and workload["batch"] == 5
    assert record["machine"] == MACHINE and record["seed"] == 0 and "torch" in record["versions"]


def test_a_page_keeps_what_was_measured_before(pretended: list[str], tmp_path: Path) -> None:
    page = tmp_path / "speed"
    assert main(["benchmark", "encode", "--device=cpu", f"--page={page}"]) == 0
    assert main(["benchmark", "decode", "--device=cpu", f"--page={page}"]) == 0
    assert sorted(path.name for path in page.iterdir()) == ["README.md", "record.json", "times.png"]
    text = (page / "README.md").read_text()
    assert pretended == [*WORKLOADS[:2]] and all(
        f"| `{name}` | 1.5 s | 3.00 (2.00 to 4.00)" in text for name in pretended
    )


def test_a_limit_is_the_most_that_was_seen_of_the_machine(
    pretended: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, flops in (("encode", 3e11), ("decode", 2e11)):
        monkeypatch.setattr(benchmark, "describe", lambda *_, flops=flops: MACHINE | {"gemm_flops": flops})
        assert main(["benchmark", name, "--device=cpu", f"--page={tmp_path}"]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["machine"] == MACHINE | {"gemm_flops": 3e11} and len(record["workloads"]) == 2


def test_pages_of_other_conditions_are_not_mixed(
    pretended: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", "encode", "--device=cpu", f"--page={tmp_path}"]) == 0
    assert main(["benchmark", "decode", "--device=cpu", "--dtype=bfloat16", f"--page={tmp_path}"]) == 1
    assert "was measured with dtype float32, not bfloat16; name another folder" in capsys.readouterr().err
    assert pretended == ["encode-small-128"]


def test_an_inequality_stops_its_workload_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(title, workload, settings):
        if workload.name == "encode-small-128":
            raise UnequalError("other differs; there is nothing to time")
        return measured(LAPS)

    monkeypatch.setattr(benchmark, "measure", measure)
    assert main(["benchmark", "--device=cpu"]) == 1
    printed = capsys.readouterr()
    assert "qkv: encode-small-128: other differs; there is nothing to time" in printed.err
    assert "decode-small-1" in printed.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--rounds=0"], "--rounds=0"),
        (["encod"], "'encode'"),
        (["--batch=0"], "--batch=0"),
        (["decode-small-1", "--contenders", "timm"], "timm"),
        (["--contenders", "hf"], "'hf'"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], part: str, pretended: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", *words]) == 1
    assert part in capsys.readouterr().err and pretended == []
