"""DeepSpeed does what the recipe says, and what it cannot do is refused; that it trains is seen in test_scale.py."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DeepSpeedPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env

from launches import launched
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training import deepspeed
from qkv.scripts.training.accelerator import build_accelerator
from recipes import recipe_of
from scale_worker import fresh_state

RECIPE = recipe_of(batch_size=32, accumulate=2, max_grad_norm=0.25)


def accelerator(**fields: Any) -> Any:
    plugin = SimpleNamespace(**{"zero_stage": 2, "deepspeed_config": {}, **fields})
    return SimpleNamespace(num_processes=4, state=SimpleNamespace(deepspeed_plugin=plugin))


@pytest.mark.parametrize("stage", [2, 3])
def test_it_gets_its_stage_and_the_clipping_of_the_recipe(stage: int) -> None:
    found = launched(f"zero{stage}.yaml")
    assert found.use_deepspeed
    found.deepspeed_fields_from_accelerate_config = ""
    with fresh_state():
        os.environ.update(prepare_deepspeed_cmd_env(found)[1])
        plugin = DeepSpeedPlugin()
    assert plugin.zero_stage == stage and not plugin.zero3_init_flag
    assert plugin.deepspeed_config["gradient_accumulation_steps"] == 1
    deepspeed.configure(accelerator(zero_stage=stage, deepspeed_config=plugin.deepspeed_config), RECIPE)
    settings = plugin.deepspeed_config
    assert (settings["gradient_clipping"], settings["train_micro_batch_size_per_gpu"]) == (0.25, 4)


def test_what_it_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="strategy=ddp"):
        deepspeed.configure(accelerator(zero_stage=0), RECIPE)
    with pytest.raises(ValueError, match="ema_decay"):
        deepspeed.configure(accelerator(), changed(RECIPE, ema_decay=0.9))
    monkeypatch.setattr(deepspeed, "is_deepspeed_available", lambda: False)
    with fresh_state(), pytest.raises(ValueError, match="pip install deepspeed"):
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        build_accelerator(RECIPE)


def test_pieces_make_up_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.arange(6.0).view(2, 3)
    monkeypatch.setattr(deepspeed.distributed, "get_world_size", lambda: 4)
    pieces = []
    for rank in range(4):
        monkeypatch.setattr(deepspeed.distributed, "get_rank", lambda rank=rank: rank)
        pieces.append(deepspeed.local_shard(SimpleNamespace(ds_tensor=torch.empty(2)), value))
    assert torch.cat(pieces).tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
