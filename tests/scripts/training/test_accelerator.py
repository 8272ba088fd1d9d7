"""Strategies of recipe and launcher: each gives its Accelerator, contradictions are refused, processes decide once."""

import os
import platform
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed import TCPStore

import qkv.modeling as models
import tiny
from checkout import ROOT
from qkv.modeling import QkvDecoderForCausalLM
from qkv.scripts.recipes.loading import changed, load
from qkv.scripts.training import accelerator as distribution
from qkv.scripts.training import distributed as processes
from qkv.scripts.training.distributed import run_on_main, value_of_first_attempt
from recipes import recipe_of
from scale_worker import fresh_state

RECIPE = recipe_of()


def launched(name: str, *words: str) -> Namespace:
    """The settings of `accelerate launch` with a config file and words beside it."""
    given = ["--config_file", str(ROOT / "scripts" / "accelerate" / name), *words, "scripts/train.py", "digits"]
    return _validate_launch_command(launch_command_parser().parse_args(given))[0]


def tiny_model(**fields: Any) -> Any:
    return QkvDecoderForCausalLM(tiny.decoder("gpt2", **fields))


def test_launch_configs_start_a_process_for_each_device() -> None:
    found = launched("ddp.yaml", "--num_processes", "2")
    assert (found.multi_gpu, found.use_fsdp, found.use_deepspeed) == (True, False, False)
    assert "ACCELERATE_USE_FSDP" not in prepare_multi_gpu_env(found) and found.nproc_per_node == "2"
    words = ("--machine_rank", "1", "--main_process_ip", "10.0.0.1", "--main_process_port", "29500")
    found = launched("two_nodes.yaml", *words)
    prepare_multi_gpu_env(found)
    assert (found.nnodes, found.nproc_per_node, found.node_rank) == ("2", "8", 1)
    assert found.rdzv_endpoint == "10.0.0.1:29500"


def test_processes_that_share_cores_and_one_process_in_place_of_several_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (launched("cpu.yaml").multi_gpu, launched("cpu.yaml").num_processes) == (True, 2)

    def told(**variables: str) -> str:
        with fresh_state(), monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            distribution.build_accelerator(RECIPE)
        return capsys.readouterr().err

    assert told() == "" and "cpu.yaml" in told(ACCELERATE_USE_CPU="true")
    assert "64 processes" in told(LOCAL_WORLD_SIZE="64")


def test_fsdp2_is_equal_from_recipe_and_config_file() -> None:
    with fresh_state():
        word = distribution.fsdp_plugin(changed(RECIPE, strategy="fsdp2"))
    with fresh_state():
        policy = distribution.fsdp_plugin(changed(RECIPE, strategy="fsdp2", precision="bf16")).mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (torch.bfloat16, torch.float32, None)
    with fresh_state():
        os.environ.update(prepare_multi_gpu_env(launched("fsdp2.yaml")))
        file = distribution.fsdp_plugin(RECIPE)
    assert isinstance(file, FullyShardedDataParallelPlugin) and file.fsdp_version == 2
    assert file.reshard_after_forward and file.cpu_ram_efficient_loading and not file.activation_checkpointing
    for plugin in (file, word):
        plugin.set_auto_wrap_policy(tiny_model())
        assert plugin.auto_wrap_policy.keywords["transformer_layer_cls"] == {type(tiny_model().model.layers[0])}
        plugin.auto_wrap_policy = None
    assert str(file) == str(word)


def test_one_process_shares_nothing() -> None:
    with fresh_state():
        accelerator = distribution.build_accelerator(changed(RECIPE, strategy="fsdp2"))
        assert accelerator.distributed_type == DistributedType.NO
        assert distribution.data_parallel(accelerator) == (0, 1)
        model = distribution.make_model(accelerator, RECIPE, tiny_model)
        assert distribution.full_model(accelerator, model) is model
    empty = distribution.empty_model(tiny_model)
    assert empty.lm_head.weight is empty.model.embed_tokens.weight
    shapes = [{name: value.shape for name, value in one.named_parameters()} for one in (empty, model)]
    assert shapes[0] == shapes[1] and {parameter.device.type for parameter in empty.parameters()} == {"cpu"}


def test_tensor_parallel_group_sees_the_same_data() -> None:
    slices = ParallelismConfig(tp_size=2)
    processes: Any = [SimpleNamespace(process_index=i, num_processes=4, parallelism_config=slices) for i in range(4)]
    assert [distribution.data_parallel(process) for process in processes] == [(0, 2), (0, 2), (1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("fields", "variable", "message"),
    [
        ({"strategy": "fsdp2", "tensor_parallel": 2}, None, "tensor_parallel=2 and strategy=fsdp2"),
        ({"strategy": "ddp"}, "ACCELERATE_USE_FSDP", "strategy=ddp and the launcher's FSDP"),
        ({}, "ACCELERATE_USE_DEEPSPEED", "DeepSpeed.*strategy=fsdp2"),
        ({}, "ACCELERATE_USE_PARALLELISM_CONFIG", "parallelism config.*tensor_parallel=2"),
        ({"tensor_parallel": 2}, None, "tensor_parallel=2 takes 2 processes.*got 1"),
        ({"tracker": "abacus"}, None, "tracker='abacus'"),
    ],
)
def test_contradictions_are_refused(
    fields: dict[str, Any], variable: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with fresh_state(), pytest.raises(ValueError, match=message):
        if variable:
            os.environ[variable] = "true"
        distribution.build_accelerator(changed(RECIPE, **fields))


@pytest.mark.parametrize(
    ("fields", "accumulate", "message"),
    [
        ({"num_attention_heads": 3, "hidden_size": 33}, 1, "num_attention_heads=3"),
        ({"num_key_value_heads": 1}, 1, "num_key_value_heads=1"),
        ({"query_key_norm": True}, 2, "accumulate=2"),
    ],
)
def test_indivisible_models_are_refused(fields: dict[str, Any], accumulate: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distribution.check_tensor_parallel(tiny.decoder("gpt2", **fields), changed(RECIPE, accumulate=accumulate), 2)


def test_models_that_cannot_be_sharded_are_refused() -> None:
    distribution.check_shardable(models.QkvSpeechEncoderDecoderModel(tiny.speech_encoder_decoder()))
    with pytest.raises(ValueError, match="QkvRecurrentModel"):
        distribution.check_shardable(models.QkvRecurrentModel(tiny.recurrent()))
    with pytest.raises(ValueError, match="logit_scale"):
        distribution.check_shardable(models.QkvDualEncoderModel(tiny.dual_encoder()))
    config = tiny.encoder_decoder("transformer", encoder={"layerdrop": 0.1})
    distribution.check_layerdrop(config, 1)
    with pytest.raises(ValueError, match=r"model\.layerdrop=0"):
        distribution.check_layerdrop(config, 2)
    with pytest.raises(ValueError, match="fsdp_version: 2"):
        distribution.enable_fsdp_on_cpu(SimpleNamespace(), SimpleNamespace(fsdp_version=1))


FAULTS = """
import resource, sys
import torch
from qkv.scripts.training.accelerator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
keep_freed_memory(torch.device("cpu"))
print(given_back, [faults() for _ in range(8)][-1])  # the first ones make the heap grow
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_memory_that_is_kept_is_not_cleared_by_the_kernel_again() -> None:
    output = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout
    given_back, kept = map(int, output.split())
    assert given_back > 4 * 2**26 // 2**21  # at least one fault for every huge page of four tensors
    assert kept < 16


# Several processes decide once ----------------------------------------------------------------------------------------


def test_result_of_the_main_process_is_returned_or_raised_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_on_main(Accelerator(cpu=True), lambda: 3) == 3
    with pytest.raises(ValueError, match="no"):
        run_on_main(Accelerator(cpu=True), lambda: int("no"))
    other = SimpleNamespace(is_main_process=False)
    monkeypatch.setattr(processes, "broadcast_object_list", lambda mine: [7, None])
    assert run_on_main(other, lambda: 1 / 0) == 7
    monkeypatch.setattr(processes, "broadcast_object_list", lambda mine: [None, OSError("disk full")])
    with pytest.raises(OSError, match="disk full"):
        run_on_main(other, lambda: 1 / 0)


def test_value_of_the_first_attempt_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert value_of_first_attempt("out", "runs/a") == "runs/a"
    agent = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {"USE_AGENT_STORE": "True", "RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))
    assert value_of_first_attempt("out", "runs/first") == "runs/first" == value_of_first_attempt("out", "runs/second")
    assert value_of_first_attempt("other", "x") == "x"


@pytest.mark.parametrize(
    ("fields", "compiles"),
    [
        ({}, True),
        ({"max_steps": 9_999}, False),
        ({"epochs": 3}, False),
        ({"strategy": "ddp"}, False),
        ({"compile": True, "epochs": 3}, True),
        ({"compile": False}, False),
        ({"architecture": "QkvEncoderForMaskedLM"}, False),
    ],
)
def test_gpu_compiles_long_trainings_of_causal_models(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], *, compiles: bool
) -> None:
    recipe = changed(load("docs-lm"), **({"max_steps": 10_000} | fields))
    assert distribution.with_device_defaults(recipe).compute.compile == fields.get("compile", False), "on a CPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    found = distribution.with_device_defaults(recipe).compute
    assert (found.compile, found.precision) == (compiles, "bf16")
