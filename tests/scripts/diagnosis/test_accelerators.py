"""Accelerators and attention: a GPU that is not used is told with the reason, and backends are run."""

from types import SimpleNamespace

import pytest
import torch

from qkv.scripts.diagnosis import accelerators
from qkv.scripts.diagnosis.accelerators import (
    Attention,
    backend_rows,
    check_accelerators,
    check_attention,
    device_rows,
    try_attention,
)


def test_both_backends_run_and_compute_the_same() -> None:
    tried = try_attention()
    assert tried.errors == {} and 0 <= tried.apart < 1e-4 and list(check_attention(tried)) == []


def test_a_backend_that_fails_or_differs_is_broken() -> None:
    failed, apart = check_attention(Attention({"sdpa": "no kernel"}, 0.5))
    assert failed.kind == apart.kind == "broken"
    assert failed.what == "attention by sdpa fails (no kernel)" and apart.what.endswith("differ by 0.5")
    assert [finding.kind for finding in check_attention(Attention({}, float("nan")))] == ["broken"]
    assert backend_rows({"sdpa": "no kernel"})["sdpa"] == "fails"


def test_an_error_of_a_backend_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **options: object) -> None:
        raise RuntimeError("no kernel\nof that kind")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fail)
    assert try_attention().errors == {"sdpa": "no kernel"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine whose GPU torch does not use")
@pytest.mark.parametrize(
    ("cuda", "visible", "what"),
    [
        (None, None, "is built for CPUs"),
        ("12.8", "", "CUDA_VISIBLE_DEVICES='' hides the GPU"),
        ("12.8", None, "torch for CUDA 12.8 cannot use it"),
    ],
)
def test_a_gpu_that_is_not_used_is_told_with_the_reason(
    cuda: str | None, visible: str | None, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerators, "has_nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (finding,) = check_accelerators()
    assert what in finding.what and finding.kind == "slow"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU, of which nothing but the answers is there."""
    own = SimpleNamespace(name="NVIDIA X", major=9, minor=0, total_memory=80 * 10**9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: own)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(accelerators, "gemm_peak", lambda device, dtype, **options: 6e14)


@pytest.mark.usefixtures("gpu")
def test_a_gpu_is_listed_with_what_it_reaches() -> None:
    rows = device_rows(measure=True)
    assert rows["torch is built for"] == "CUDA 12.8"
    assert rows["cuda:0"] == "NVIDIA X, compute 9.0, 80 GB, bf16, products at 600 TFLOP/s"
    assert "flash" in backend_rows({})["sdpa"]


@pytest.mark.usefixtures("gpu")
def test_what_a_gpu_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "is_flash_attn_2_available", lambda: False)
    monkeypatch.setattr(accelerators, "find_spec", lambda module: None)
    assert [finding.what for finding in check_accelerators()] == [
        "flash-attn is not installed",
        "triton is not installed",
    ]


def test_devices_are_listed() -> None:
    rows = device_rows(measure=False)
    assert rows["torch is built for"] and len(rows) >= 2
