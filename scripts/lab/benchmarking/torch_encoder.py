"""A BERT whose layers are `torch.nn.TransformerEncoder`, which in inference skips padding by nested tensors."""

import copy
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput

from qkv.scripts.lab.benchmarking.candidate import Candidate, Row, copied, joined, of_rows
from qkv.scripts.lab.benchmarking.workloads import Workload

# Parts of a layer, by their names in the stock one.
PLACES = {
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}


class TorchEncoder(nn.Module):
    """Layers of PyTorch between the embeddings and the head of a stock BERT."""

    def __init__(self, stock: Any) -> None:
        super().__init__()
        config = stock.config
        # Copied together, for the head may share the table of embeddings.
        self.embeddings, self.head = copy.deepcopy((stock.base_model.embeddings, getattr(stock, "cls", None)))
        layer = nn.TransformerEncoderLayer(
            config.hidden_size, config.num_attention_heads, config.intermediate_size, dropout=0.0, activation="gelu",
            layer_norm_eps=config.layer_norm_eps, batch_first=True,
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, config.num_hidden_layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
        """Return the hidden states, or with a head all logits, and the loss where there are labels."""
        hidden = self.encoder(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
        return with_head(self.head, hidden, labels)


def with_head(head: nn.Module | None, hidden: Tensor, labels: Tensor | None) -> Any:
    """Return the output of a BERT: hidden states, or with a head all logits, and the loss where there are labels."""
    if head is None:
        return BaseModelOutput(last_hidden_state=hidden)
    logits = head(hidden)
    loss = None if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return MaskedLMOutput(loss=loss, logits=logits)


def torch_encoder(stock: Any, workload: Workload) -> Candidate:
    """Take over a BERT."""
    model = TorchEncoder(stock)
    prefix = "" if model.head is None else "bert."
    return of_rows(model, stock, {name: row_of(name, prefix) for name, _ in model.named_parameters()})


def row_of(name: str, prefix: str) -> Row:
    """Return the row of a weight by its name."""
    part, _, rest = name.partition(".")
    if part == "embeddings":
        return copied(f"{prefix}{name}")
    if part == "head":
        return copied(f"cls.{rest}")
    _, layer, *words, kind = rest.split(".")
    theirs = f"{prefix}encoder.layer.{layer}"
    if kind.startswith("in_proj_"):
        kind = kind.removeprefix("in_proj_")
        return joined(*(f"{theirs}.attention.self.{what}.{kind}" for what in ("query", "key", "value")))
    return copied(f"{theirs}.{PLACES['.'.join(words)]}.{kind}")
