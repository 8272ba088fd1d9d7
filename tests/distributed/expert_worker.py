"""A mixture of experts whose layers or experts several processes share; `main` is that of one of them."""

import json
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

import qkv
import tiny

PLANS: dict[str, dict[str, int]] = {
    "tensor": {"tp_size": 2},
    "tensor and experts": {"tp_size": 2, "ep_size": 2},
    "shards and experts": {"fsdp_size": 2, "ep_size": 2},
}
FORMS: dict[str, dict[str, Any]] = {
    "mixtral": {"pattern": "full"},
    "shared": {"feed_forward": ["glu", "moe"], "shared_expert_intermediate_size": 12, "shared_expert_gate": True},
    "deepseek": {"router": "sigmoid", "score_correction_bias": True, "routed_scaling_factor": 2.5},
}


def build(form: str) -> qkv.QkvDecoderForCausalLM:
    """A small mixture, every weight moved off its initial value."""
    torch.manual_seed(0)
    fields = {
        "feed_forward": "moe",
        "num_experts": 4,
        "moe_intermediate_size": 8,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        **FORMS[form],
    }
    model = qkv.QkvDecoderForCausalLM(tiny.decoder("llama", **fields)).eval()
    model.set_experts_implementation("eager")
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the parts of all processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def compare(form: str, plan: str) -> dict[str, float]:
    """The largest differences of logits and gradients from those of one process, and the share of equal tokens.

    In single precision: in double, transformers 5.24 halves the gradients of experts that shards share, its own, too.
    """
    alone = build(form)
    shared = type(alone).from_pretrained(
        None, config=alone.config, state_dict=alone.state_dict(), distributed_config=DistributedConfig(**PLANS[plan])
    )
    shared.set_experts_implementation("eager")
    ids = torch.randint(3, alone.config.vocab_size, (2, 9), generator=torch.Generator().manual_seed(1))
    outputs = [model(input_ids=ids, labels=ids) for model in (alone, shared)]
    for output in outputs:
        whole(output.loss).backward()
    gradients = dict(shared.named_parameters())
    tokens = [model.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None) for model in (alone, shared)]
    return {
        "logits": float((whole(outputs[1].logits) - outputs[0].logits).detach().abs().max()),
        "gradients": max(float((whole(gradients[n].grad) - p.grad).abs().max()) for n, p in alone.named_parameters()),
        "tokens": float((tokens[0] == tokens[1]).double().mean()),
        "split": float(isinstance(gradients["model.layers.1.mlp.experts.down_proj"], DTensor)),
    }


def main(place: str, form: str) -> None:
    """Compare by every plan, and write the results."""
    found = {plan: compare(form, plan) for plan in PLANS}
    Path(place, f"{form}-{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
