"""A measurement: every kind of workload runs, ours and transformers are equal, who cannot run is named."""

import pytest

from qkv.scripts.lab.benchmarking import run
from qkv.scripts.lab.benchmarking.attention import KERNEL
from qkv.scripts.lab.benchmarking.candidate import AbsentError
from qkv.scripts.lab.benchmarking.contenders import CONTENDERS, Contender, chosen_contenders, theirs
from tiny_workloads import RUN, settings, tiny


@pytest.mark.parametrize("name", RUN)
@pytest.mark.costly(5)
def test_every_kind_of_workload_runs_with_equal_results(name: str) -> None:
    told: list[int] = []
    record = run.measure(tiny(name), settings("qkv", "transformers"), lambda what, laps: told.append(laps))
    assert sum(told) == 6 and record["absent"] == {}
    for own in record["contenders"].values():
        assert len(own["seconds"]) == 2 and own["peak_bytes"] > 0
        assert max(own["differences"].values(), default=0.0) < 1e-5
    assert record["contenders"]["transformers"]["times_as_fast"] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["gpu-delta-8192", "gpu-delta-train-8192"])
def test_kernels_are_timed_beside_each_other(name: str) -> None:
    record = run.measure(tiny(name), settings(*chosen_contenders([])), lambda *_: None)
    assert [*record["contenders"]] == ["linear", "gated_delta"] and record["reference"] == "linear"
    assert record["contenders"]["linear"]["times_as_fast"] == [1.0, 1.0, 1.0]
    assert record["work"].keys() == {"flops", "bytes", "tokens"}


def test_kernels_of_attention_are_known_by_names_of_operations() -> None:
    names = ("torch_attn::_varlen_attn", "fused_flex_attention_0", "aten::_scaled_dot_product_cudnn_attention")
    found = [KERNEL.findall(name) for name in (*names, "aten::_flash_attention_forward")]
    assert found == [["varlen"], ["flex"], ["cudnn"], []]


@pytest.mark.parametrize("name", ["gpu-encode-128-fp16", "gpu-decode-1-fp16"])
def test_a_workload_names_its_dtype(name: str) -> None:
    record = run.measure(tiny(name), settings("qkv", "transformers"), lambda *_: None)
    assert {(own["dtype"], own["attention"]) for own in record["contenders"].values()} == {("float16", "flash")}
    assert record["dtype"] == "float16"


def test_an_absent_contender_is_named_and_its_laps_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(stock, workload):
        raise AbsentError("it is not installed")

    monkeypatch.setitem(CONTENDERS, "other", Contender("elsewhere", absent))
    told: list[int] = []
    workload = tiny("encode-small-128")
    record = run.measure(workload, settings("transformers", "other"), lambda what, laps: told.append(laps))
    assert record["absent"] == {"other": "it is not installed"} and [*record["contenders"]] == ["transformers"]
    assert sum(told) == 6


def test_a_model_that_does_not_compile_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCompilerError(Exception):
        pass

    def fails(*args: object, **options: object) -> None:
        raise NoCompilerError("no C++ compiler\nand a long log")

    def take_over(stock, workload):
        taken = theirs(stock, workload)
        monkeypatch.setattr(taken.model, "forward", fails)
        return taken

    workload = tiny("encode-small-128")
    monkeypatch.setattr("qkv.scripts.lab.benchmarking.contenders.compile_model", lambda model, workload: None)
    monkeypatch.setitem(CONTENDERS, "other", Contender("compiled", take_over, compiled=True))
    record = run.measure(workload, settings("transformers", "other"), lambda what, laps: None)
    assert record["absent"] == {"other": "it cannot be compiled here: no C++ compiler"}
    monkeypatch.setitem(CONTENDERS, "other", Contender("not compiled", take_over))
    with pytest.raises(NoCompilerError):
        run.measure(workload, settings("transformers", "other"), lambda what, laps: None)
