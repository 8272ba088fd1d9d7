"""What is printed and written follows from the record."""

from pathlib import Path

import pytest

from qkv.scripts.lab.benchmarking.figures import draw
from qkv.scripts.lab.benchmarking.report import against_best, columns, page
from tiny_workloads import MACHINE, measured, record

LAPS = {"qkv": [1.0, 2.0], "transformers": [4.0, 4.0], "transformers-compiled": [2.0, 3.0], "elsewhere": [8.0, 16.0]}


def test_lines_are_ordered_by_time_and_say_the_ratio_the_limit_and_the_memory() -> None:
    lines = columns(measured(LAPS), MACHINE)
    assert [line["contender"] for line in lines] == ["qkv", "transformers-compiled", "transformers", "elsewhere"]
    assert lines[0] == {
        "contender": "qkv",
        "median": "1.5 s",
        "times as fast": "3.00 (2.00 to 4.00)",
        "tokens/s": "66.7",
        "of limit": "7 %",
        "memory": "3 kB",
        "differs by": "1e-07",
    }


def test_the_better_form_of_transformers_is_the_one_to_beat() -> None:
    assert against_best(measured(LAPS)) == ("transformers-compiled", [1.5, 1.75, 2.0])
    only = {name: LAPS[name] for name in ("qkv", "transformers")}
    assert against_best(measured(only)) == ("transformers", [2.0, 3.0, 4.0])
    assert against_best(measured({"transformers": [1.0]})) is None


def test_a_page_has_the_numbers_of_its_record_and_names_who_is_absent() -> None:
    absent = {"timm": "it is not installed"}
    text = page(record(mlm=measured(LAPS, absent=absent), other=measured({"transformers": [1.0]})))
    assert "| `mlm` | 1.5 s | 3.00 (2.00 to 4.00) | 1.75 (1.50 to 2.00), transformers-compiled | 7 % |" in text
    assert "- timm: it is not installed" in text and "a processor" in text and "100 GFLOP/s" in " ".join(text.split())
    assert "| elsewhere | 12 s | 0.38 (0.25 to 0.50) |" in text and "`0123456789ab`" in text
    assert "None" not in text and "`other`" not in text


@pytest.mark.parametrize("laps", [LAPS, {"transformers": [1.0]}])
def test_a_plot_is_drawn_of_whoever_ran(laps: dict[str, list[float]], tmp_path: Path) -> None:
    draw(record(mlm=measured(laps), clm=measured({"transformers": [1.0], "qkv": [2.0]})), tmp_path / "times.png")
    assert (tmp_path / "times.png").stat().st_size > 5000


def test_a_gpu_has_the_usual_utilisations_and_names_what_was_never_measured() -> None:
    machine = MACHINE | {"device": "cuda", "driver": "580.1", "cuda": "13.0", "told_flops": 1e12}
    workload = measured({"qkv": [1.0], "transformers": [2.0]})
    workload["work"] |= {"model_flops": 4e11, "bytes": 0.5 * MACHINE["bandwidth_bytes"]}
    workload["contenders"]["qkv"] |= {"first_seconds": 30.2, "attention": "varlen", "dtype": "bfloat16"}
    assert "varlen bfloat16" in " ".join(columns(workload, machine)[0].values())
    shown = {line["contender"]: (line["MFU"], line["MBU"], line["first calls"]) for line in columns(workload, machine)}
    assert shown == {"qkv": ("40.0 %", "50 %", "30 s"), "transformers": ("20.0 %", "25 %", "")}
    text = page(record(**{"gpu-decode-1": workload, "gpu-clm-train-1024": workload}) | {"machine": machine})
    missing = next(line for line in text.splitlines() if line.startswith("Never measured"))
    assert "`gpu-vit-train`" in missing and "`gpu-decode-1`" not in missing and "mlm-train-small-128" not in text
    assert "`gpu-clm-train-1024 by qkv-one-product`" in missing and "`gpu-clm-train-1024`" not in missing
