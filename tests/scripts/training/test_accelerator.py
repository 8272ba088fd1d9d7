"""How processes share a training: what is asked for where, what Accelerate makes of it, and what is refused."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env

import qkv.modeling as models
import tiny
from launches import CONFIGS, launched
from qkv.modeling import QkvDecoderForCausalLM
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training import accelerator as distribution
from recipes import recipe_of
from scale_worker import fresh_state

RECIPE = recipe_of()


def test_there_is_a_config_for_each_engine() -> None:
    assert {path.name for path in CONFIGS.glob("*.yaml")} == {
        "ddp.yaml", "fsdp2.yaml", "zero2.yaml", "zero3.yaml", "two_nodes.yaml",
    }  # fmt: skip


def test_ddp_starts_a_process_for_each_device() -> None:
    found = launched("ddp.yaml", "--num_processes", "2")
    assert (found.multi_gpu, found.use_fsdp, found.use_deepspeed) == (True, False, False)
    environment = prepare_multi_gpu_env(found)
    assert found.nproc_per_node == "2" and "ACCELERATE_USE_FSDP" not in environment


def test_two_nodes_meet_at_one_address() -> None:
    words = ("--machine_rank", "1", "--main_process_ip", "10.0.0.1", "--main_process_port", "29500")
    found = launched("two_nodes.yaml", *words)
    prepare_multi_gpu_env(found)
    assert (found.nnodes, found.nproc_per_node, found.node_rank) == ("2", "8", 1)
    assert found.rdzv_endpoint == "10.0.0.1:29500"


def test_the_config_file_and_the_word_of_the_recipe_are_one_sharding() -> None:
    with fresh_state():
        word = distribution.fsdp_plugin(changed(RECIPE, strategy="fsdp2"))
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


def tiny_model(**fields: Any) -> Any:
    return QkvDecoderForCausalLM(tiny.decoder("gpt2", **fields))


def test_half_precision_adds_up_gradients_in_single() -> None:
    with fresh_state():
        policy = distribution.fsdp_plugin(changed(RECIPE, strategy="fsdp2", precision="bf16")).mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (torch.bfloat16, torch.float32, None)


def test_on_one_process_nothing_is_shared() -> None:
    with fresh_state():
        accelerator = distribution.build_accelerator(changed(RECIPE, strategy="fsdp2"))
        assert accelerator.distributed_type == DistributedType.NO
        assert distribution.data_parallel(accelerator) == (0, 1)
        model = distribution.make_model(accelerator, RECIPE, tiny_model)
        assert distribution.full_model(accelerator, model, QkvDecoderForCausalLM) is model


def test_a_tensor_parallel_group_sees_the_same_data() -> None:
    slices = ParallelismConfig(tp_size=2)
    processes: Any = [SimpleNamespace(process_index=i, num_processes=4, parallelism_config=slices) for i in range(4)]
    assert [distribution.data_parallel(process) for process in processes] == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_empty_models_have_shapes_and_ties() -> None:
    model = distribution.empty_model(tiny_model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert {name: value.shape for name, value in model.named_parameters()} == {
        name: value.shape for name, value in tiny_model().named_parameters()
    }
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


@pytest.mark.parametrize(
    ("fields", "variable", "message"),
    [
        ({"strategy": "fsdp2", "tensor_parallel": 2}, None, "tensor_parallel=2 and strategy=fsdp2"),
        ({"strategy": "ddp"}, "ACCELERATE_USE_FSDP", "strategy=ddp and the launcher's FSDP"),
        ({"tensor_parallel": 2}, "ACCELERATE_USE_DEEPSPEED", "tensor_parallel=2 and the launcher's DeepSpeed"),
        ({"tensor_parallel": 2}, None, "tensor_parallel=2 takes 2 processes, or a multiple; got 1"),
        ({"tracker": "abacus"}, None, "tracker='abacus' is not known; the trackers are tensorboard, trackio"),
    ],
)
def test_what_contradicts_itself_is_refused(
    fields: dict[str, Any], variable: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with fresh_state(), pytest.raises(ValueError, match=message):
        if variable:
            os.environ[variable] = "true"
        distribution.build_accelerator(changed(RECIPE, **fields))


def test_two_ways_of_the_launcher_itself_are_its_business() -> None:
    with fresh_state():
        os.environ.update(ACCELERATE_USE_FSDP="true", ACCELERATE_USE_PARALLELISM_CONFIG="true")
        distribution.check_strategies(RECIPE)


@pytest.mark.parametrize(
    ("fields", "accumulate", "message"),
    [
        ({"num_attention_heads": 3, "hidden_size": 33}, 1, "does not divide num_attention_heads=3"),
        ({"num_key_value_heads": 1}, 1, "does not divide num_key_value_heads=1"),
        ({"query_key_norm": True}, 2, "set it to 1"),
    ],
)
def test_models_that_cannot_be_sliced_are_refused(fields: dict[str, Any], accumulate: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distribution.check_tensor_parallel(tiny.decoder("gpt2", **fields), changed(RECIPE, accumulate=accumulate), 2)


def test_what_has_no_layers_is_not_shared_out() -> None:
    for kind, config in (
        (models.QkvEncoderModel, tiny.encoder()),
        (models.QkvSpeechEncoderDecoderModel, tiny.speech_encoder_decoder()),
    ):
        distribution.check_shardable(kind(config))
    with pytest.raises(
        ValueError, match="QkvRecurrentModel has no layers that processes could share; set strategy=ddp"
    ):
        distribution.check_shardable(models.QkvRecurrentModel(tiny.recurrent()))
    with pytest.raises(ValueError, match="QkvDualEncoderModel has the scalar parameter logit_scale"):
        distribution.check_shardable(models.QkvDualEncoderModel(tiny.dual_encoder()))


def test_layers_skipped_by_chance_are_refused_on_several_processes() -> None:
    config = tiny.encoder_decoder("transformer", encoder={"layerdrop": 0.1})
    distribution.check_layerdrop(config, 1)
    with pytest.raises(ValueError, match="set model.layerdrop=0"):
        distribution.check_layerdrop(config, 2)


def test_slices_of_the_launcher_are_refused() -> None:
    distribution.check_parallelism_config(ParallelismConfig(dp_shard_size=2))
    with pytest.raises(ValueError, match="tensor_parallel=2 in the recipe"):
        distribution.check_parallelism_config(ParallelismConfig(tp_size=2))


def test_the_older_sharding_is_refused_without_gpus() -> None:
    with pytest.raises(ValueError, match="fsdp_version: 2"):
        distribution.enable_fsdp_on_cpu(SimpleNamespace(), SimpleNamespace(fsdp_version=1))
