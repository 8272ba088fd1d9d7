"""A training step waits for nothing, paths take the memory that they promise, and steps of generation are recorded."""

import copy
from typing import Any
from unittest import mock

import pytest
import torch
from gpu_models import IDS, MASKS, batch_of, build, by_blocks, long_batch, moved, needs_cuda

from qkv.modeling import execution
from qkv.modeling.fast_paths import flex_blocks, recorded_step
from qkv.modeling.fast_paths.recorded_step import Recording
from qkv.modeling.heads import language_modeling

pytestmark = needs_cuda("waits, memory and recorded graphs")
PACKED = {"cu_seq_lens_q": torch.tensor([0, 7, 40, 41, 120], dtype=torch.int32)}


def packed_row() -> dict[str, Any]:
    """Documents in one row, as a collator packs them, with their boundaries."""
    row = IDS.view(1, -1)
    return moved({"input_ids": row, "labels": row, **PACKED, "cu_seq_lens_k": PACKED["cu_seq_lens_q"]}, "cuda")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("given", ["rows", "packed", "unmeasured paths"])
def test_a_training_step_does_not_wait(given: str, *, compiled: bool) -> None:
    model = build("decoder", position="rope").cuda().bfloat16().train()
    model.remove_padding = True
    model.model.one_product = model.model.cudnn_first = given == "unmeasured paths"
    inputs = packed_row() if given == "packed" else moved(batch_of("decoder", None), "cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    run = torch.compile(model) if compiled else model
    for _ in range(3):
        torch.cuda.set_sync_debug_mode("error" if _ == 2 else "default")
        run(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("given", ["whole", "left", "packed"])
def test_a_training_step_by_blocks_does_not_wait(given: str, *, compiled: bool) -> None:
    fields = {"position": "rope", "pattern": "block_sparse", "max_position_embeddings": 512}
    model, inputs = build("decoder", **fields).cuda().bfloat16().train(), moved(long_batch(given), "cuda")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    run = torch.compile(model) if compiled else model
    patched = mock.patch.object(flex_blocks, "SHARE", float("inf")) if compiled else by_blocks()
    kernel = flex_blocks.FLEX_KERNELS["cuda"]._replace(work=-float("inf"))  # a graph calls no mock
    with mock.patch.dict(flex_blocks.FLEX_KERNELS, cuda=kernel), patched:
        for step in range(3):
            torch.cuda.set_sync_debug_mode("error" if step == 2 else "default")
            run(**inputs).loss.backward()
    torch.cuda.set_sync_debug_mode("default")


def test_padding_costs_one_wait() -> None:
    model = build("encoder", position="rope").cuda().bfloat16()
    model.remove_padding = True
    inputs = moved({"input_ids": IDS, "attention_mask": MASKS["right"]}, "cuda")
    with torch.no_grad():
        model(**inputs)
        torch.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchroniz") as waits:
            model(**inputs)
    assert len(waits) == 1


def peak(model: Any, inputs: dict[str, Any], *, train: bool) -> int:
    """Bytes that a step takes beside weights."""
    for _ in range(2):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.set_grad_enabled(train):
            outputs = model(**inputs)
        if train:
            outputs.loss.backward()
            model.zero_grad()
        del outputs
    return torch.cuda.max_memory_allocated() - before


def test_windows_take_a_fraction_of_the_memory() -> None:
    fields = {"position": "rope", "pattern": "sliding", "sliding_window": 256, "max_position_embeddings": 8192}
    model = build("decoder", **fields).cuda().bfloat16().eval()
    ids = {"input_ids": torch.randint(5, 97, (1, 8192), device="cuda"), "logits_to_keep": 1, "use_cache": False}
    with mock.patch.object(execution, "PLANS", []):
        dense = peak(model, ids, train=False)
    model.remove_padding = True
    assert peak(model, ids, train=False) <= dense / 5


@pytest.mark.parametrize("pattern", ["dilated", "block_sparse"])
def test_blocks_take_a_fraction_of_the_memory(pattern: str) -> None:
    fields = {"position": "rope", "pattern": pattern, "sliding_window": 256, "max_position_embeddings": 16384}
    model = build("decoder", **fields).cuda().bfloat16().eval()
    ids = {"input_ids": torch.randint(5, 97, (1, 16384), device="cuda"), "logits_to_keep": 1, "use_cache": False}
    with mock.patch.object(execution, "PLANS", []):
        dense = peak(model, ids, train=False)
    with by_blocks():
        assert peak(model, ids, train=False) <= dense / 5


def test_the_loss_takes_a_fraction_of_the_memory() -> None:
    model = build("decoder", position="rope", vocab_size=50000, max_position_embeddings=1024).cuda().bfloat16().train()
    ids = torch.randint(5, 50000, (16, 1024), device="cuda")
    chunked = peak(model, {"input_ids": ids, "labels": ids}, train=True)
    with mock.patch.object(language_modeling, "LARGE", 2**60):
        assert chunked <= 0.5 * peak(model, {"input_ids": ids, "labels": ids}, train=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", ["none", "left"])
@pytest.mark.parametrize("position", ["learned", "rope", "alibi", "t5"])
def test_recorded_steps_write_the_same_tokens(position: str, mask: str, dtype: torch.dtype) -> None:
    model = build("decoder", position=position, max_position_embeddings=512).cuda().to(dtype).eval()
    given = moved({"input_ids": IDS, "attention_mask": MASKS[mask]}, "cuda")
    how = {"max_new_tokens": 300, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, "output_logits": True}
    found, steps, step = [], [], Recording.step
    watched = mock.patch.object(Recording, "step", lambda *args: steps.append(1) or step(*args))
    for fast in (False, True, True):
        model.lay_out_weights = fast
        with watched:
            found.append(model.generate(**given, **how, return_dict_in_generate=True))
    assert len(steps) >= 2 * (299 - 2 * recorded_step.PATIENCE)
    for each in found[1:]:
        # Rounding decides between tokens of equal score; scores are compared up to the first that differs.
        same = (each.sequences == found[0].sequences).all(0)
        until = len(same) if same.all() else int((~same).float().argmax())
        assert until > IDS.shape[1] + 2 * recorded_step.PATIENCE
        scores = [torch.stack(run.logits[: until - IDS.shape[1]]) for run in (each, found[0])]
        assert (scores[0] - scores[1]).abs().max() <= (1e-3 if dtype == torch.float32 else 0.5)


def test_recorded_tokens_stay_the_same_beside_other_work() -> None:
    model = build("decoder", position="rope").cuda().eval()
    how = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    first = model.generate(IDS[:, :8].cuda(), **how)
    other = copy.deepcopy(model)
    for _ in range(3):
        torch.randn(2**20, device="cuda").sort()
        other.generate(IDS[:, 8:16].cuda(), **how)
        assert torch.equal(model.generate(IDS[:, :8].cuda(), **how), first)
