"""The loads of experts: counted token by token, without padding, and in the record and the card of a run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import qkv
from comparison import decoder
from qkv.modeling.heads.routing import routers_of
from qkv.scripts.publishing.export.run_folder import write_run_card
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.expert_loads import LOADS, expert_loads
from qkv.scripts.training.run import train

EXPERTS = 5


@pytest.fixture
def model() -> qkv.QkvDecoderForCausalLM:
    torch.manual_seed(0)
    config = decoder(feed_forward=["moe", "mlp", "moe"], num_experts=EXPERTS, num_experts_per_tok=2, mlp_bias=False)
    return qkv.QkvDecoderForCausalLM(config).eval()


@pytest.fixture
def batches() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(3, 11, (rows, 6), generator=generator) for rows in (3, 2)]
    masks = [torch.ones_like(each) for each in ids]
    masks[0][1, 4:] = 0
    return [{"input_ids": each, "attention_mask": mask} for each, mask in zip(ids, masks, strict=True)]


def slow(model: qkv.QkvDecoderForCausalLM, batches: list[dict[str, Tensor]]) -> Iterator[list[float]]:
    """One layer after another: the text of each row alone, without padding, and one choice at a time."""
    for router in routers_of(model):
        counts = [0] * EXPERTS
        for batch in batches:
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
                seen: list[Tensor] = []
                hook = router.register_forward_hook(lambda *call, seen=seen: seen.append(call[-1][-1]))
                model(input_ids=ids[mask.bool()][None])
                hook.remove()
                for expert in seen[0].flatten().tolist():
                    counts[expert] += 1
        yield [count / sum(counts) for count in counts]


def test_loads_are_those_of_real_tokens(model: qkv.QkvDecoderForCausalLM, batches: list[dict[str, Tensor]]) -> None:
    found = expert_loads(model, batches)
    assert len(found) == 2 and found == [pytest.approx(each) for each in slow(model, batches)]
    assert not any(router._forward_hooks for router in routers_of(model))


def test_a_run_records_them_and_its_card_shows_them(tmp_path: Path) -> None:
    words = ["max_steps=2", "text.made=60", "text.symbols=5", "model.num_hidden_layers=2", "model.feed_forward=moe"]
    words += ["model.num_experts=4", "model.mlp_bias=false", "model.hidden_act=silu", "threads=1"]
    finished = train(load("copy", [*words, f"out={tmp_path / 'run'}"]), "qkv train copy")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert [len(shares) for shares in record["experts"]] == [4, 4]
    assert [sum(shares) for shares in record["experts"]] == pytest.approx([1.0, 1.0])
    assert LOADS in record["pictures"] and (tmp_path / "run" / LOADS).is_file()
    write_run_card(finished.folder)
    least = min(record["experts"][0])
    assert f"| {100 * least:.1f} % to " in (tmp_path / "run" / "README.md").read_text()
