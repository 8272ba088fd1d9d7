"""A decoder of plain modules in the shape of nanoGPT's, with its one projection of queries, keys and values."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import CausalLMOutput

from qkv.scripts.lab.benchmarking.candidate import Candidate, Rows, copied, of_rows, turned
from qkv.scripts.lab.benchmarking.workloads import Workload


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output of the block: (B, T, D) -> (B, T, D)."""
        parts = self.c_attn(self.ln_1(hidden)).split(hidden.shape[-1], -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.c_proj(attended.transpose(1, 2).flatten(2))
        return hidden + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(hidden)), approximate="tanh"))


class PlainDecoder(nn.Module):
    """A language model whose output matrix is its table of embeddings."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width, eps = config.n_embd, config.layer_norm_epsilon
        self.wte, self.wpe = nn.Embedding(config.vocab_size, width), nn.Embedding(config.n_positions, width)
        self.blocks = nn.ModuleList(Block(width, config.n_head, eps) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(width, eps)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> CausalLMOutput:
        """Return all logits, and the loss where there are labels."""
        hidden = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            hidden = block(hidden)
        logits = functional.linear(self.ln_f(hidden), self.wte.weight)
        if labels is None:
            return CausalLMOutput(logits=logits)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)


def plain_decoder(stock: Any, workload: Workload) -> Candidate:
    """Take over a GPT-2 to train it; nanoGPT generates without a cache."""
    model = PlainDecoder(stock.config)
    rows: Rows = {f"{name}.weight": copied(f"transformer.{name}.weight") for name in ("wte", "wpe", "ln_f")}
    rows["ln_f.bias"] = copied("transformer.ln_f.bias")
    places = {"c_attn": "attn.c_attn", "c_proj": "attn.c_proj", "c_fc": "mlp.c_fc", "mlp_proj": "mlp.c_proj"}
    for layer in range(len(model.blocks)):
        own, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        for name, place in places.items():
            rows[f"{own}.{name}.weight"] = turned(f"{theirs}.{place}.weight")
            rows[f"{own}.{name}.bias"] = copied(f"{theirs}.{place}.bias")
        for name in ("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"):
            rows[f"{own}.{name}"] = copied(f"{theirs}.{name}")
    return of_rows(model, stock, rows)
