"""A model split over stages, as transformers and serving engines split it, gives what it gives whole."""

import copy
import itertools
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache
from transformers.distributed.pipeline_parallel import PipelineIdentityLayer

import pipeline_worker
import processes
import tiny
from qkv.configuration.axes import PositionName
from qkv.modeling import QkvDecoderForCausalLM
from sampling import sampled

FIELDS: dict[str, dict[str, Any]] = {
    **{position: {"position": position} for position in get_args(PositionName) if position != "grid"},
    "window": {"position": "rope", "pattern": ["full", "sliding", "full"], "sliding_window": 3},
    "narrow": {"embedding_size": 20, "embedding_norm": True, "scale_embedding": True},
}


def build(**fields: Any) -> QkvDecoderForCausalLM:
    torch.manual_seed(0)
    return tiny.jitter(QkvDecoderForCausalLM(tiny.decoder(num_hidden_layers=3, **fields))).eval()


def stage(model: QkvDecoderForCausalLM, here: range, missing: type[nn.Module]) -> Any:
    """The model as an engine leaves it to the holder of these layers."""
    part = copy.deepcopy(model)
    base = part.model
    for index in set(range(3)) - {*here}:
        base.layers[index] = missing()
    if 2 not in here:
        base.norm, part.lm_head = missing(), missing()
    elif 0 not in here and not model.config.tie_word_embeddings:
        base.embed_tokens = missing()
    return part


def run(stages: list[Any], caches: list[DynamicCache], ids: Tensor, **given: Tensor) -> Tensor:
    """The logits of one stage after the other."""
    first, *between, last = zip(stages, caches, strict=True)
    hidden = first[0].model(ids, past_key_values=first[1], use_cache=True, **given).last_hidden_state
    for part, cache in between:
        hidden = part.model(inputs_embeds=hidden, past_key_values=cache, use_cache=True, **given).last_hidden_state
    return last[0](inputs_embeds=hidden, past_key_values=last[1], use_cache=True, **given).logits


@torch.no_grad()
@pytest.mark.parametrize(("name", "tied"), sampled(itertools.product(FIELDS, (True, False)), 5))
def test_stages_give_what_the_whole_gives(name: str, tied: bool) -> None:
    model = build(**FIELDS[name], tie_word_embeddings=tied)
    inputs = tiny.text()
    mask = inputs["attention_mask"].flip(1)
    ids = inputs["input_ids"].flip(1)
    for bounds in ((0, 1, 3), (0, 1, 2, 3)):
        parts = [range(start, end) for start, end in zip(bounds, bounds[1:], strict=False)]
        stages = [stage(model, part, PipelineIdentityLayer) for part in parts]
        caches = [DynamicCache(config=model.config) for _ in parts]
        whole = DynamicCache(config=model.config)
        for start, end in ((0, 5), (5, 6), (6, 9)):
            places = (mask.cumsum(1)[:, start:end] - 1).clamp(min=0)
            given = {"attention_mask": mask[:, :end], "position_ids": places}
            expected = model(ids[:, start:end], past_key_values=whole, use_cache=True, **given).logits
            found = run(stages, caches, ids[:, start:end], **given)
            real = mask[:, start:end].bool()
            assert_close(found[real], expected[real], rtol=1e-5, atol=1e-5)


def test_the_plan_names_what_is_split() -> None:
    model = build()
    plan = model.pp_plan
    assert list(model.model.pp_plan) == ["embed_tokens", "layers", "norm"]
    assert all(isinstance(model.get_submodule(name), nn.Module) for name in plan) and "lm_head" in plan


@pytest.mark.slow
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope", "alibi"])
def test_two_processes_generate_what_one_does(position: str, tmp_path: Path) -> None:
    model = build(position=position)
    model.save_pretrained(tmp_path / "model")
    processes.run_together(pipeline_worker.__name__, [tmp_path / "model", tmp_path / "found"], tmp_path)
    found = torch.load(tmp_path / "found")
    inputs = pipeline_worker.inputs()
    with torch.no_grad():
        assert_close(found["logits"], model(**inputs).logits, rtol=1e-5, atol=1e-5)
    assert torch.equal(found["tokens"], model.generate(**inputs, max_new_tokens=6, do_sample=False))
