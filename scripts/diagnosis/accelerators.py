"""Check accelerators and attention backends, the latter by running them."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers.utils import is_flash_attn_2_available, is_torch_flex_attn_available

from qkv import QkvDecoderConfig, QkvDecoderForCausalLM
from qkv.scripts.benchmarking.machine import gemm_peak
from qkv.scripts.common.tables import scaled
from qkv.scripts.diagnosis.findings import Finding

DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidia0")
# Outputs of two backends that compute the same differ by rounding alone.
ROUNDING = 1e-4
REPEATS = 5
BACKENDS = ("eager", "sdpa")


def device_rows(*, measure: bool) -> dict[str, str]:
    """Return the accelerators, with the rate of products in bfloat16 if that is to be measured."""
    rows = {"torch is built for": build()}
    for index in range(torch.cuda.device_count()):
        own = torch.cuda.get_device_properties(index)
        facts = [own.name, f"compute {own.major}.{own.minor}", scaled(own.total_memory, "B")]
        facts += ["bf16" if own.major >= 8 else "no bf16"]
        if measure:
            dtype = torch.bfloat16 if own.major >= 8 else torch.float16
            rate = gemm_peak(torch.device("cuda", index), dtype, repeats=REPEATS)
            facts.append(f"products at {scaled(rate, 'FLOP/s')}")
        rows[f"cuda:{index}"] = ", ".join(facts)
    for name, backend in (("mps", torch.backends.mps), ("xpu", torch.xpu)):
        if backend.is_available():
            rows[name] = "available"
    return rows if len(rows) > 1 else rows | {"accelerators": "none; everything runs on the CPU"}


def build() -> str:
    """Return what the installed torch can use."""
    for name, version in (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip)):
        if version:
            return f"{name} {version}"
    return "CPUs and MPS" if torch.backends.mps.is_built() else "CPUs"


def backend_rows(errors: Mapping[str, str]) -> dict[str, str]:
    """Return for each attention backend that it works, or what it lacks; `errors` are of those that were tried."""
    flash = "works" if is_flash_attn_2_available() else "needs an NVIDIA GPU and pip install flash-attn"
    flex = "compiled on its first use" if is_torch_flex_attn_available() else "needs torch 2.5"
    tried = {
        "eager": "works; the slowest, it keeps all weights of attention",
        "sdpa": f"works, the default: {', '.join(sdpa_kernels())}",
    }
    return tried | dict.fromkeys(errors, "fails") | {"flex_attention": flex, "flash_attention_2": flash}


def sdpa_kernels() -> list[str]:
    """Return the kernels that sdpa may choose from here."""
    if not torch.cuda.is_available():
        return ["flash on CPUs", "math"]
    cuda = torch.backends.cuda
    enabled = {"flash": cuda.flash_sdp_enabled(), "memory-efficient": cuda.mem_efficient_sdp_enabled()}
    enabled |= {"cuDNN": cuda.cudnn_sdp_enabled(), "math": cuda.math_sdp_enabled()}
    return [name for name, on in enabled.items() if on]


def check_accelerators() -> Iterator[Finding]:
    """Check that a GPU that is there is used, and that attention computes the same in every way."""
    if has_nvidia_driver() and not torch.cuda.is_available():
        yield unused_gpu()
    if torch.cuda.is_available() and not is_flash_attn_2_available():
        yield Finding(
            "note",
            "flash-attn is not installed",
            "sdpa has its kernel for full attention, but not for texts packed in one row",
            "pip install flash-attn --no-build-isolation, then attn_implementation='flash_attention_2'",
        )
    if torch.cuda.is_available() and find_spec("triton") is None:
        yield Finding(
            "slow",
            "triton is not installed",
            "torch.compile makes GPU kernels with it, so compile=true fails",
            "pip install triton",
        )


def has_nvidia_driver() -> bool:
    """Return whether the system has a GPU of NVIDIA, whatever torch says."""
    return any(Path(name).exists() for name in DRIVERS) or shutil.which("nvidia-smi") is not None


def unused_gpu() -> Finding:
    """Return why a GPU that is there is not used."""
    why = "everything runs on the CPU, tens of times slower"
    if torch.version.cuda is None:
        mend = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128"
        return Finding("slow", f"there is an NVIDIA GPU, and torch {torch.__version__} is built for CPUs", why, mend)
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return Finding("slow", f"CUDA_VISIBLE_DEVICES={visible!r} hides the GPU", why, "unset CUDA_VISIBLE_DEVICES")
    what = f"there is an NVIDIA GPU, and torch for CUDA {torch.version.cuda} cannot use it"
    return Finding("slow", what, why, "nvidia-smi shows the driver; update it, or install torch for an older CUDA")


@dataclass(frozen=True)
class Attention:
    """The errors of a small decoder by attention backend, and how far the results of those that ran are apart."""

    errors: dict[str, str]
    apart: float


@torch.no_grad()
def try_attention() -> Attention:
    """Run a small decoder by eager attention and by sdpa."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    config = QkvDecoderConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=16, max_position_embeddings=16
    )
    model = QkvDecoderForCausalLM(config).eval().to(device or "cpu")
    tokens = torch.arange(16, device=device)[None]
    outputs, errors = [], {}
    for name in BACKENDS:
        model.set_attn_implementation(name)
        try:
            outputs.append(model(tokens).logits)
        except (RuntimeError, ValueError, ImportError) as error:
            errors[name] = str(error).partition("\n")[0]
    return Attention(errors, (outputs[0] - outputs[-1]).abs().max().item() if outputs else 0.0)


def check_attention(attention: Attention) -> Iterator[Finding]:
    """Check that both backends ran, and computed the same."""
    mend = "install torch again: pip install --force-reinstall torch"
    for name, error in attention.errors.items():
        yield Finding("broken", f"attention by {name} fails ({error})", "no model runs with it", mend)
    if not attention.apart <= ROUNDING:
        yield Finding(
            "broken",
            f"attention by sdpa and by eager differ by {attention.apart:.1g}",
            "one of them computes other numbers than it should",
            f"{mend}; until then use attn_implementation='eager'",
        )
