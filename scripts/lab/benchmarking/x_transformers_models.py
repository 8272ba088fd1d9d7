"""Models of the library x-transformers with the weights of a BERT or a GPT-2; it has no biases in attention and norms.

Those of the stock models begin at zero, so outputs are equal, and so are the gradients of all weights that it has.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

from qkv.scripts.lab.benchmarking.candidate import Candidate, Row, Rows, check_installed, copied, of_rows, turned
from qkv.scripts.lab.benchmarking.torch_encoder import with_head
from qkv.scripts.lab.benchmarking.workloads import Workload

LIBRARY = "x_transformers"


class Encoder(nn.Module):
    """An encoder of the library, called as a BERT is."""

    def __init__(self, stock: Any) -> None:
        from x_transformers import Encoder as Layers
        from x_transformers import TransformerWrapper

        super().__init__()
        config = stock.config
        layers = Layers(**sizes(config), pre_norm=False, attn_flash=True)
        self.net = TransformerWrapper(
            num_tokens=config.vocab_size,
            max_seq_len=config.max_position_embeddings,
            attn_layers=layers,
            post_emb_norm=True,
            to_logits=nn.Identity(),
        )
        self.head = copy.deepcopy(getattr(stock, "cls", None))
        if self.head is not None:
            self.head.predictions.decoder.weight = self.net.token_emb.emb.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
        """Return the hidden states, or with a head all logits, and the loss where there are labels."""
        hidden = self.net(input_ids, mask=attention_mask.bool(), return_embeddings=True)
        return with_head(self.head, hidden, labels)


class Decoder(nn.Module):
    """A decoder of the library in its own wrapper, called as a GPT-2 is."""

    def __init__(self, stock: Any) -> None:
        from x_transformers import AutoregressiveWrapper, TransformerWrapper
        from x_transformers import Decoder as Layers

        super().__init__()
        config = stock.config
        layers = Layers(**sizes(config), attn_flash=True, ff_custom_activation=nn.GELU(approximate="tanh"))
        net = TransformerWrapper(
            num_tokens=config.vocab_size,
            max_seq_len=config.n_positions,
            attn_layers=layers,
            tie_embedding=True,
            tie_embedding_scale=1.0,
        )
        self.wrapper = AutoregressiveWrapper(net)
        self.net = net

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> CausalLMOutput:
        """Return all logits, or the loss where there are labels."""
        if labels is None:
            return CausalLMOutput(logits=self.net(input_ids))
        return CausalLMOutput(loss=self.wrapper(labels))

    def generate(self, input_ids: Tensor, max_new_tokens: int, **options: Any) -> Tensor:
        """Return prompts and the most probable tokens after them."""
        written = self.wrapper.generate(input_ids, max_new_tokens, temperature=0.0, cache_kv=True)
        return torch.cat([input_ids, written], 1)


def sizes(config: Any) -> dict[str, Any]:
    """Return the sizes of layers."""
    width, heads = config.hidden_size, config.num_attention_heads
    return {
        "dim": width, "depth": config.num_hidden_layers, "heads": heads, "attn_dim_head": width // heads,
        "ff_mult": (getattr(config, "intermediate_size", None) or 4 * width) / width,
    }  # fmt: skip


def x_transformers(stock: Any, workload: Workload) -> Candidate:
    """Take over a BERT or a GPT-2."""
    check_installed(LIBRARY)
    if workload.model.official == "GPT2LMHeadModel":
        decoder = Decoder(stock)
        return of_rows(decoder, stock, decoder_rows(stock, decoder))
    encoder = Encoder(stock)
    return of_rows(encoder, stock, encoder_rows(stock, encoder))


def offset(model: nn.Module, norm: str) -> float:
    """Return what a norm of the library adds to its scale."""
    return float(getattr(model.get_submodule(norm), "unit_offset", False))


def scale_of(model: nn.Module, norm: str, name: str) -> Row:
    """Return the row of a norm's scale."""
    return Row(lambda tensors: tensors[f"{name}.weight"], shift=-offset(model, norm))


def encoder_rows(stock: Any, model: nn.Module) -> Rows:
    """Return the rows of an encoder; it has no types of tokens, so that of the first stands in its positions."""
    prefix = "bert." if hasattr(stock, "cls") else ""
    table, root = f"{prefix}embeddings", stock.config.hidden_size**0.5
    kinds = stock.state_dict()[f"{table}.token_type_embeddings.weight"][0] * root
    rows = {
        "net.token_emb.emb.weight": copied(f"{table}.word_embeddings.weight"),
        "net.pos_emb.emb.weight": Row(lambda tensors: tensors[f"{table}.position_embeddings.weight"], root, kinds),
        "net.post_emb_norm.gamma": scale_of(model, "net.post_emb_norm", f"{table}.LayerNorm"),
    }
    for layer in range(stock.config.num_hidden_layers):
        theirs = f"{prefix}encoder.layer.{layer}"
        attention, feed_forward = (f"net.attn_layers.layers.{2 * layer + place}" for place in (0, 1))
        for own, name in {
            "to_q": "self.query",
            "to_k": "self.key",
            "to_v": "self.value",
            "to_out": "output.dense",
        }.items():
            rows[f"{attention}.1.{own}.weight"] = copied(f"{theirs}.attention.{name}.weight")
        for own, name in {"ff.0.0": "intermediate.dense", "ff.2": "output.dense"}.items():
            for kind in ("weight", "bias"):
                rows[f"{feed_forward}.1.{own}.{kind}"] = copied(f"{theirs}.{name}.{kind}")
        for place, name in ((attention, "attention.output"), (feed_forward, "output")):
            rows[f"{place}.0.2.gamma"] = scale_of(model, f"{place}.0.2", f"{theirs}.{name}.LayerNorm")
    heads = (name for name, _ in model.named_parameters() if name.startswith("head."))
    return rows | {name: copied(f"cls.{name.removeprefix('head.')}") for name in heads}


def part(name: str, place: int) -> Row:
    """Return the row of queries, keys or values, which GPT-2 computes by one matrix."""
    return Row(lambda tensors: tensors[name].chunk(3, 1)[place].T)


def decoder_rows(stock: Any, model: nn.Module) -> Rows:
    """Return the rows of a decoder."""
    root, inner = stock.config.hidden_size**0.5, "wrapper.net"
    rows = {
        f"{inner}.token_emb.emb.weight": copied("transformer.wte.weight"),
        f"{inner}.pos_emb.emb.weight": Row(lambda tensors: tensors["transformer.wpe.weight"], root),
        f"{inner}.attn_layers.final_norm.gamma": scale_of(model, f"{inner}.attn_layers.final_norm", "transformer.ln_f"),
    }
    for layer in range(stock.config.num_hidden_layers):
        theirs = f"transformer.h.{layer}"
        attention, feed_forward = (f"{inner}.attn_layers.layers.{2 * layer + place}" for place in (0, 1))
        for place, own in enumerate(("to_q", "to_k", "to_v")):
            rows[f"{attention}.1.{own}.weight"] = part(f"{theirs}.attn.c_attn.weight", place)
        rows[f"{attention}.1.to_out.weight"] = turned(f"{theirs}.attn.c_proj.weight")
        for own, name in {"ff.0.0": "mlp.c_fc", "ff.2": "mlp.c_proj"}.items():
            rows[f"{feed_forward}.1.{own}.weight"] = turned(f"{theirs}.{name}.weight")
            rows[f"{feed_forward}.1.{own}.bias"] = copied(f"{theirs}.{name}.bias")
        for norm, name in ((f"{attention}.0.0", "ln_1"), (f"{feed_forward}.0.0", "ln_2")):
            rows[f"{norm}.gamma"] = scale_of(model, norm, f"{theirs}.{name}")
    return rows
