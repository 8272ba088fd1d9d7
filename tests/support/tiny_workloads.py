"""The workloads of `scripts/lab/benchmark.py` at a size that takes no time, and what a measurement of them looks like."""

from dataclasses import replace
from typing import Any

import torch

from qkv.scripts.lab.benchmarking.contenders import stock_model
from qkv.scripts.lab.benchmarking.run import Settings
from qkv.scripts.lab.benchmarking.workloads import Workload, read_workloads

BERT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32}
WHISPER = {
    "vocab_size": 60, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_source_positions": 20,
    "num_mel_bins": 8, "pad_token_id": 50, "bos_token_id": 50, "eos_token_id": 50, "decoder_start_token_id": 51,
    "begin_suppress_tokens": None,
}  # fmt: skip
LLAMA = BERT | {"num_key_value_heads": 1}
SIZES: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": BERT,
    "BertModel": BERT,
    "GPT2LMHeadModel": GPT2,
    "LlamaForCausalLM": LLAMA,
    **dict.fromkeys(("QkvDecoderModel", "QkvDecoderForCausalLM"), BERT),
    "LlamaModel": LLAMA,
    **dict.fromkeys(("MixtralModel", "MixtralForCausalLM"), LLAMA | {"num_local_experts": 4}),
    "MistralModel": LLAMA | {"sliding_window": 4},
    "MistralForCausalLM": LLAMA | {"sliding_window": 4},
    "LongformerModel": BERT | {"attention_window": 4},
    "LongformerForMaskedLM": BERT | {"attention_window": 4},
    "BigBirdModel": BERT,
    "BigBirdForMaskedLM": BERT,
    "BartForConditionalGeneration": {"vocab_size": 40, "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    "ViTForImageClassification": VIT,
    "WhisperForConditionalGeneration": WHISPER,
}
WORKLOADS = read_workloads()
# One for each class and step.
KINDS = {
    (workload.model.official, workload.step, workload.beams): name for name, workload in reversed(WORKLOADS.items())
}
RUN = [name for name in KINDS.values() if not name.startswith(("load", "gpu-delta"))]
MACHINE = {
    "device": "cpu", "name": "a processor", "cores": 2, "threads": 2, "dtype": "float32",
    "gemm_flops": 1e11, "bandwidth_bytes": 2e10,
}  # fmt: skip
LENGTHS = {"batch": 3, "length": 12, "target_length": 8, "new_tokens": 4}


def tiny(name: str) -> Workload:
    """A workload with a small model and a small batch."""
    workload = WORKLOADS[name]
    shape = replace(workload.model, config=workload.model.config | SIZES[workload.model.official])
    small = {key: min(value, getattr(workload, key)) for key, value in LENGTHS.items()}
    return replace(workload, model=shape, **small)


def stock(workload: Workload, seed: int = 0) -> Any:
    """The stock model of a workload."""
    return stock_model(workload, seed, torch.device("cpu"), torch.float32)


def settings(*contenders: str, rounds: int = 2) -> Settings:
    """The conditions of a measurement on a CPU."""
    return Settings(contenders, rounds, 0, torch.device("cpu"), torch.float32)


def measured(seconds: dict[str, list[float]], **others: Any) -> dict[str, Any]:
    """A workload's record with these laps."""
    from qkv.scripts.lab.benchmarking.timing import ratios

    contenders = {
        name: {
            "seconds": own,
            "times_as_fast": ratios(seconds["transformers"], own),
            "peak_bytes": 1000 * len(name),
            "differences": {"loss": 1e-7},
        }
        for name, own in seconds.items()
    }
    workload = WORKLOADS["mlm-train-small-128"]
    return {
        **workload.sizes, "work": {"flops": 1e10, "bytes": 0, "tokens": 100.0}, "absent": {},
        "contenders": contenders, "rounds": 2, "commit": "0123456789abcdef", **others,
    }  # fmt: skip


def record(**workloads: dict[str, Any]) -> dict[str, Any]:
    """A whole record."""
    versions = {"torch": "2.13.0", "transformers": "5.23.0"}
    return {
        "command": "python -m qkv.scripts.lab benchmark", "seed": 0, "commit": "0123456789abcdef", "versions": versions, "machine": MACHINE,
        "workloads": workloads,
    }  # fmt: skip
