"""The page on migration: each row says what conversion gives, or what computes the same as the program it names."""

import importlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import reference
from checkout import ROOT
from comparison import assert_same, exact, jittered
from families import ROWS
from qkv import QkvDecoderConfig, QkvDecoderForCausalLM, configuration
from qkv.configuration import presets
from qkv.configuration.configuration_base import QkvConfig
from qkv.modeling.conversion.convert import CONVERSIONS, from_transformers
from qkv.modeling.position.absolute import LearnedPosition
from qkv.modeling.position.relative import T5Position
from qkv.scripts.lab.benchmarking.plain_decoder import PlainDecoder
from qkv.scripts.publishing.card.model import changed, defaults_of

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
OFFICIAL = {row.class_name: row for row in ROWS if not row.name}
# What a row leaves to the reader: labels, and what is said at a call.
LEFT_OUT = {"float16_clamp", "output_attentions", "id2label", "label2id", "architectures", "dtype", "return_dict"}


def table(heading: str) -> list[tuple[str, str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", section, re.M)


STOCK = [row for row in table("transformers") if re.fullmatch(r"\w+", row[0])]


def built(code: str) -> Any:
    return eval(code, {**vars(configuration)})


def words(config: QkvConfig) -> dict[str, Any]:
    """The fields that differ from the defaults and are no numbers, those of parts under `part.field`."""
    differences = changed(config.to_dict(), defaults_of(type(config)))
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
@pytest.mark.costly(12)
def test_a_config_has_the_words_of_the_official_class(official: str, code: str) -> None:
    converted = from_transformers(OFFICIAL[official].build()).config
    config = built(code)
    assert type(config) is type(converted) and words(config) == words(converted)


def test_every_architecture_has_a_row() -> None:
    kinds = {each.theirs: each.model_type for each in CONVERSIONS}
    assert {kinds[official] for official, _ in STOCK} == set(kinds.values())


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


def small(**fields: Any) -> QkvDecoderConfig:
    """The preset of a row of nanoGPT, but for its sizes."""
    sizes = {"vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}
    return presets.gpt2(**{**fields, **sizes, "bos_token_id": None, "eos_token_id": None})


def nanogpt(state: dict[str, Tensor], ids: Tensor, *, bias: bool = True, heads: int = 2, layers: int = 2) -> Tensor:
    """The forward of nanoGPT's GPT (model.py) without dropout, its default, with weights of ours."""

    def both(name: str) -> list[Tensor | None]:
        return [state[f"model.{name}.weight"], state[f"model.{name}.bias"] if bias else None]

    def block(x: Tensor, layer: str) -> Tensor:
        normed = reference.layer_norm(x, *both(f"{layer}.self_attn_residual.norm"), 1e-5)
        projections = [each for name in "qkvo" for each in both(f"{layer}.self_attn.{name}_proj")]
        before = {"visible": lambda b, t, s: reference.causal(t, s)}
        x = x + reference.multi_head_attention(normed, normed, *projections, heads, heads, **before)[0]
        normed = reference.layer_norm(x, *both(f"{layer}.mlp_residual.norm"), 1e-5)
        return x + reference.mlp(normed, *both(f"{layer}.mlp.up_proj"), *both(f"{layer}.mlp.down_proj"), reference.gelu)

    table = state["model.embed_tokens.weight"]
    x = table[ids] + state["model.position.table.weight"][: ids.shape[1]]
    for number in range(layers):
        x = block(x, f"layers.{number}")
    return reference.linear(reference.layer_norm(x, *both("norm"), 1e-5), table)


@pytest.mark.parametrize(("theirs", "code"), table("nanoGPT"))
def test_a_nanogpt_computes_the_same(theirs: str, code: str) -> None:
    torch.manual_seed(0)
    ids = torch.randint(11, (1, 5))
    with exact(), torch.no_grad():
        model = jittered(QkvDecoderForCausalLM(eval(code, {"presets": SimpleNamespace(gpt2=small)}))).train()
        expected = nanogpt(model.state_dict(), ids, bias=eval(theirs, {"GPTConfig": dict}).get("bias", True))
        assert_same(model(input_ids=ids).logits, expected)


# Projections of x-transformers, and what ours are called; a gated one has both in one matrix.
PROJECTIONS = {
    "to_q": ["q_proj"], "to_k": ["k_proj"], "to_v": ["v_proj"], "to_out": ["o_proj"],
    "ff.0.0": ["up_proj"], "ff.0.proj": ["up_proj", "gate_proj"], "ff.2": ["down_proj"],
}  # fmt: skip


def shared_weights(wrapper: Any, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each weight of a model of x-transformers, and ours as they lie there."""
    config, stack, layers = model.config, model.model, wrapper.attn_layers
    yield wrapper.token_emb.emb.weight, stack.embed_tokens.weight
    if isinstance(stack.position, LearnedPosition):
        yield wrapper.pos_emb.emb.weight, stack.position.table.weight * config.hidden_size**0.5
    if isinstance(stack.position, T5Position):
        yield layers.rel_pos.relative_attention_bias.weight, stack.position.table.weight / config.head_dim**0.5
    parts = ["self_attn", *(["cross_attn"] if config.cross_attention else []), "mlp"]
    for part, (norms, block, _) in zip(parts, layers.layers, strict=True):
        (norm,) = filter(None, norms)
        yield (
            next(norm.parameters()),
            getattr(stack.layers[0], f"{part}_residual").norm.weight - float(norm.unit_offset),
        )
        for name, weight in block.named_parameters():
            own, kind = name.rsplit(".", 1)
            each = [getattr(getattr(stack.layers[0], part), other) for other in PROJECTIONS[own]]
            yield weight, by_heads(torch.cat([getattr(one, kind) for one in each]), own, config, layers.rotary_pos_emb)
    if config.norm_first:
        yield next(layers.final_norm.parameters()), stack.norm.weight - float(layers.final_norm.unit_offset)


def by_heads(weight: Tensor, name: str, config: QkvDecoderConfig, rotary: Any) -> Tensor:
    """Return a projection with heads as x-transformers has them, and neighbours as the pairs that are rotated."""
    if rotary is not None and name in ("to_q", "to_k"):
        size, heads = 2 * len(rotary.inv_freq), weight.unflatten(0, (-1, config.head_dim))
        turned = heads[:, :size].unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        weight = torch.cat((turned, heads[:, size:]), dim=1).flatten(0, 1)
    if name in ("to_q", "to_out"):  # query heads that share a key are neighbours here, and apart there
        axis = 1 if name == "to_out" else 0
        groups = weight.unflatten(axis, (config.num_key_value_heads, -1, config.head_dim))
        weight = groups.transpose(axis, axis + 1).flatten(axis, axis + 2)
    return weight


@pytest.mark.parametrize(("theirs", "ours"), [pytest.param("", "", id="plain"), *table("x-transformers")])
def test_a_decoder_of_x_transformers_computes_the_same(theirs: str, ours: str) -> None:
    library = importlib.import_module("x_transformers")
    torch.manual_seed(0)
    options, fields = (eval(f"dict({row})") for row in (theirs, ours))
    layers = library.Decoder(**{"dim": 64, "depth": 1, "heads": 4, "attn_dim_head": 16, "verbose": False, **options})
    wrapper = library.TransformerWrapper(
        num_tokens=50, max_seq_len=20, attn_layers=layers, tie_embedding=True, tie_embedding_scale=1
    )
    config = QkvDecoderConfig(
        **{"attention_bias": False, "norm_bias": False, **fields}, vocab_size=50, hidden_size=64, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=20,
    )  # fmt: skip
    ids, memory = torch.randint(50, (1, 20)), torch.randn(1, 3, 64, dtype=torch.float64)
    context = ({"context": memory}, {"encoder_hidden_states": memory}) if config.cross_attention else ({}, {})
    with exact(), torch.no_grad():
        model = jittered(QkvDecoderForCausalLM(config)).eval()
        weights = list(shared_weights(wrapper.double().eval(), model))
        assert sum(len(weight.flatten()) for weight, _ in weights) == model.num_parameters()
        assert {id(weight) for weight, _ in weights} == set(map(id, wrapper.parameters()))
        for weight, own in weights:
            weight.copy_(own)
        # Its softmax is in single precision.
        assert_same(model(input_ids=ids, **context[1]).logits, wrapper(ids, **context[0]), tolerance=1e-5)
