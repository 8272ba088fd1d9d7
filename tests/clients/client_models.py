"""Tiny models of ours beside the stock models of the same weights, a tokenizer for them, and programs to run on both."""

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BartConfig,
    BertConfig,
    BloomConfig,
    CLIPConfig,
    DetrConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ResNetConfig,
    Speech2TextConfig,
    T5Config,
    ViTConfig,
    WhisperConfig,
)

import qkv
import tiny

LETTERS = ["<unk>", "<pad>", "<s>", "</s>", *string.ascii_lowercase, *string.digits, *"?!.,:;()+-*/=<>[]@#&%"]
CHAT = "{% for message in messages %}{{ message['content'] }}</s>{% endfor %}"


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
HALVES = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
IDS = {"vocab_size": len(LETTERS), "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
BOTH_HALVES = {f"{half}_{name}": value for half in ("encoder", "decoder") for name, value in HALVES.items()}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
STOCK: dict[str, Callable[..., PreTrainedConfig]] = {
    "llama": partial(LlamaConfig, **SIZES, **IDS, num_key_value_heads=2),
    "mistral": partial(MistralConfig, **SIZES, **IDS, num_key_value_heads=2, sliding_window=6),
    "gpt2": partial(GPT2Config, **IDS, **NO_DROPOUT, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "bloom": partial(BloomConfig, **IDS, hidden_size=32, n_layer=2, n_head=4),
    "bert": partial(BertConfig, **SIZES, **IDS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "vit": partial(ViTConfig, **SIZES, image_size=16, patch_size=4),
    "t5": partial(
        T5Config,
        **IDS,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=1,
    ),
    "bart": partial(BartConfig, **IDS, **BOTH_HALVES, d_model=32, decoder_start_token_id=3),
    "clip": partial(
        CLIPConfig,
        text_config={**SIZES, **IDS, "max_position_embeddings": 48},
        vision_config={**SIZES, "image_size": 16, "patch_size": 4},
        projection_dim=20,
    ),
    "detr": partial(
        DetrConfig,
        **BOTH_HALVES,
        d_model=32,
        num_queries=5,
        num_labels=3,
        use_timm_backbone=False,
        backbone_config=ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], out_features=["stage2"]),
    ),
    "speech_to_text": partial(
        Speech2TextConfig,
        **IDS,
        **BOTH_HALVES,
        d_model=32,
        input_feat_per_channel=6,
        conv_channels=10,
        decoder_start_token_id=3,
    ),
    "whisper": partial(
        WhisperConfig,
        **IDS,
        **BOTH_HALVES,
        d_model=32,
        num_mel_bins=6,
        max_source_positions=11,
        max_target_positions=48,
        decoder_start_token_id=3,
    ),
}


def tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """Letters as tokens, with the ids of the tiny models."""
    letters = Tokenizer(models.WordLevel({letter: index for index, letter in enumerate(LETTERS)}, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, **special, model_max_length=48, chat_template=CHAT, **options
    )


def both(kind: str, head: Any, **fields: Any) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A model of ours, and the stock model of a kind, by its Auto class, that it was converted from."""
    torch.manual_seed(0)
    stock = tiny.jitter(head.from_config(STOCK[kind](**fields))).eval()
    return qkv.from_transformers(stock).eval(), stock


# A function of a model and a folder.
Use = Callable[[Any, Path], Any]


@dataclass(frozen=True)
class Program:
    """A use of a program, and the model that it is used on: a kind, its Auto class and fields."""

    name: str
    what: str
    use: Use
    kind: str
    auto: Any
    fields: dict[str, Any]
    rtol: float

    def __str__(self) -> str:
        return f"{self.name}, {self.what}, {self.kind}"


def program(
    table: list[Program], name: str, what: str, heads: dict[str, Any], *, rtol: float = 1e-4, **fields: Any
) -> Callable[[Use], Use]:
    """Enter the function below into a table, for models of some kinds."""

    def enter(use: Use) -> Use:
        table.extend(Program(name, what, use, kind, auto, fields, rtol) for kind, auto in heads.items())
        return use

    return enter


def installed(module: str) -> Any:
    """Import a program of others."""
    return pytest.importorskip(module, reason="`make clients` installs it", exc_type=ImportError)


def run(each: Program, folder: Path, side_by_side: Callable[..., None]) -> None:
    """Run a program of the table on both models."""
    pair = both(each.kind, each.auto, **each.fields)
    side_by_side(each.name, each.what, lambda model: each.use(model, folder), *pair, rtol=each.rtol)


def saved(model: PreTrainedModel, folder: Path) -> Path:
    """The folder of a model and its tokenizer."""
    path = folder / type(model).__name__
    model.save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path
