"""The page on migration: each row says what conversion gives, or what has as many parameters."""

import importlib
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from checkout import ROOT
from families import ROWS
from qkv import QkvDecoderConfig, QkvDecoderForCausalLM, configuration
from qkv.configuration.configuration_base import QkvConfig
from qkv.modeling.conversion.convert import ARCHITECTURES, from_transformers
from qkv.scripts.benchmarking.plain_decoder import PlainDecoder
from qkv.scripts.publishing.card.model import changed

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
OFFICIAL = {row.class_name: row for row in ROWS if not row.name}
# What a row leaves to the reader: labels, and what is said at a call.
LEFT_OUT = {"output_attentions", "id2label", "label2id", "architectures", "dtype", "return_dict"}


def table(heading: str) -> list[tuple[str, str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", section, re.M)


STOCK = [row for row in table("transformers") if re.fullmatch(r"\w+", row[0])]


def built(code: str) -> Any:
    return eval(code, {**vars(configuration)})


def words(config: QkvConfig) -> dict[str, Any]:
    """The fields that differ from the defaults and are no numbers, those of parts under `part.field`."""
    differences = changed(config.to_dict(), type(config)().to_dict())
    parts = {
        f"{part}.{name}": value for part in config.sub_configs for name, value in differences.pop(part, {}).items()
    }
    # One list of patterns is like another: as long as there are layers.
    values = {
        name: sorted(set(value)) if isinstance(value, list) else value
        for name, value in {**differences, **parts}.items()
    }
    return {
        name: value
        for name, value in values.items()
        if name.rpartition(".")[2] not in LEFT_OUT
        and (isinstance(value, str | bool) or (isinstance(value, list) and isinstance(value[0], str)))
    }


@pytest.mark.parametrize(("official", "code"), STOCK, ids=[row[0] for row in STOCK])
def test_a_config_has_the_words_of_the_official_class(official: str, code: str) -> None:
    converted = from_transformers(OFFICIAL[official].build()).config
    config = built(code)
    assert type(config) is type(converted) and words(config) == words(converted)


def test_every_architecture_has_a_row() -> None:
    kinds = {head.theirs: architecture.model_type for architecture in ARCHITECTURES for head in architecture.heads}
    assert {kinds[official] for official, _ in STOCK} == {architecture.model_type for architecture in ARCHITECTURES}


def parameters(config: QkvConfig) -> int:
    with torch.device("meta"):
        return QkvDecoderForCausalLM(config).num_parameters()


@pytest.mark.parametrize(("theirs", "code"), table("nanoGPT"))
def test_a_nanogpt_has_as_many_parameters(theirs: str, code: str) -> None:
    sizes = {"block_size": 1024, "vocab_size": 50304, "n_layer": 12, "n_head": 12, "n_embd": 768, "bias": True}
    given = SimpleNamespace(**{**sizes, **eval(theirs, {"GPTConfig": dict})}, layer_norm_epsilon=1e-5)
    given.n_positions = given.block_size
    with torch.device("meta"):
        model = PlainDecoder(given)
    named = [(name, weight.numel()) for name, weight in model.named_parameters()]
    assert parameters(built(code)) == sum(size for name, size in named if given.bias or not name.endswith("bias"))


@pytest.mark.parametrize(("theirs", "ours"), table("x-transformers"))
def test_a_decoder_of_x_transformers_has_as_many_parameters(theirs: str, ours: str) -> None:
    library = importlib.import_module("x_transformers")
    options, fields = (eval(f"dict({row})") for row in (theirs, ours))
    layers = library.Decoder(
        **{"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16, "rotary_emb_dim": 16, **options}
    )
    wrapper = library.TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers, tie_embedding=True)
    config = {"attention_bias": False, "norm_bias": False, **fields}
    model = QkvDecoderConfig(
        **config, vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32
    )
    assert parameters(model) == sum(weight.numel() for weight in wrapper.parameters())
