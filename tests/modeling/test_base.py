"""Every family starts, ties and describes itself as transformers expects."""

import inspect

import pytest
import torch
from torch import nn
from transformers.distributed.fsdp import _resolve_tied_embed_lm_head_plan

import qkv.modeling
import tiny
from comparison import audio, decoder, encoder, pair, vision
from qkv.configuration import (
    QkvDualEncoderConfig,
    QkvEncoderDecoderConfig,
    QkvRecurrentConfig,
    QkvSpeechEncoderDecoderConfig,
    QkvTextEncoderConfig,
)
from qkv.modeling.attention import Gate
from qkv.modeling.base import QkvPreTrainedModel, exactly_one
from qkv.modeling.position import DETECTION_POSITIONS, POSITIONS, Position

pytestmark = pytest.mark.upstream

CLASSES = sorted(name for name in qkv.modeling.__all__ if name.startswith("Qkv"))
# Made of layers with positions; recurrent cells start in their own way (tests/modeling/recurrent/test_recurrent_stack.py).
STACKS = [name for name in CLASSES if "Recurrent" not in name]

OTHERS = {"Image": vision, "Audio": audio, "QkvDetection": tiny.detector}


def config_of(name, **fields):
    sizes = {"hidden_size": 6, "num_attention_heads": 3, "head_dim": 4, "num_hidden_layers": 2, "vocab_size": 11}
    sizes |= {"intermediate_size": 7, "max_position_embeddings": 13, **fields}
    if "Speech" in name:
        return QkvSpeechEncoderDecoderConfig(**sizes)
    if "EncoderDecoder" in name:
        return QkvEncoderDecoderConfig(**sizes)
    if "Dual" in name or "Text" in name:
        sizes |= {"bos_token_id": 0, "eos_token_id": 1}
        return QkvDualEncoderConfig(**sizes) if "Dual" in name else QkvTextEncoderConfig(**sizes)
    if "Recurrent" in name:
        return QkvRecurrentConfig(**{"hidden_size": 8, "vocab_size": 11, "num_hidden_layers": 2, **fields})
    if "Pair" in name:
        fields.pop("position", None)
        return pair(**fields)
    fields |= {"contact_head": "outer_product"} if "Contact" in name else {}
    make = decoder if "Decoder" in name else encoder
    return next((other for part, other in OTHERS.items() if part in name), make)(**fields)


def build(name, **fields):
    return getattr(qkv.modeling, name)(config_of(name, **fields))


@pytest.mark.parametrize("name", CLASSES)
def test_flags(name):
    model = build(name)
    assert isinstance(model, QkvPreTrainedModel)
    # Losses take the count of the whole step; Trainer must not guess it from the signature.
    assert model.accepts_loss_kwargs
    assert model.supports_gradient_checkpointing
    assert model._supports_sdpa == (name in STACKS)
    # A bias for each pair of residues takes gradients, which flex attention sums up one by one.
    assert model._supports_flex_attn == (name in STACKS and "Pair" not in name)
    kinds = {type(module).__name__ for module in model.modules()}
    assert set(model._no_split_modules) <= kinds


# What CLIP has beside its halves starts in its own way as well (tests/modeling/test_modeling_dual_encoder.py), and so do
# backbones.
@pytest.mark.parametrize("name", [name for name in STACKS if not name.startswith(("QkvDual", "QkvDetection"))])
@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_initialisation(name, spread):
    """Matrices and tables are normal with the config's spread, biases zero, gains one, gates nearly open."""
    fields = {"initializer_range": spread, "position": "learned", "hidden_size": 96, "intermediate_size": 128}
    assert_initialised(build(name, **fields), spread)


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_initialisation_of_a_detector_without_a_backbone(spread):
    config = tiny.detector("patches", initializer_range=spread, hidden_size=96, intermediate_size=128)
    assert_initialised(qkv.modeling.QkvDetectionForObjectDetection(config), spread)


def assert_initialised(model, spread):
    gains = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    gates = [path for path, module in model.named_modules() if isinstance(module, Gate)]
    gains |= {f"{path}.bias" for path in gates}
    for key, parameter in model.named_parameters():
        if key in gains:
            assert torch.equal(parameter, torch.ones_like(parameter)), key
        elif key.endswith("bias") or "mask_token" in key or key.removesuffix(".weight") in gates:
            assert torch.equal(parameter, torch.zeros_like(parameter)), key
        elif parameter.numel() > 900:
            assert abs(parameter.std().item() / spread - 1) < 0.1, key
            assert abs(parameter.mean().item()) < 4 * spread / parameter.numel() ** 0.5, key
        else:
            assert 0 < parameter.std().item() < 3 * spread, key


def without_a_checkpoint(config):
    return qkv.modeling.QkvDecoderForCausalLM.from_pretrained(None, config=config, state_dict={}).state_dict()


@pytest.mark.parametrize("word", sorted(POSITIONS.keys() - DETECTION_POSITIONS))
def test_position_encodings_that_a_checkpoint_lacks_are_initialised(word):
    config = decoder(position=word, **{"text_length": 4, "grid_columns": 3} if word == "grid" else {})
    fresh, loaded = qkv.modeling.QkvDecoderForCausalLM(config).state_dict(), without_a_checkpoint(config)
    assert all(torch.isfinite(value).all() for value in loaded.values())
    assert {name: value.std(correction=0) > 0 for name, value in loaded.items()} == {
        name: value.std(correction=0) > 0 for name, value in fresh.items()
    }


class Ramp(Position):
    """A parameter that no rule initialises: its first value is all there is."""

    def __init__(self, config):
        super().__init__(config)
        self.ramp = nn.Parameter(torch.linspace(1.0, 2.0, 5))


def test_a_parameter_without_a_rule_keeps_its_first_value(monkeypatch):
    monkeypatch.setitem(POSITIONS, "none", Ramp)
    loaded = without_a_checkpoint(decoder(position="none"))
    assert torch.equal(loaded["model.position.ramp"], torch.linspace(1.0, 2.0, 5))
    assert all(torch.isfinite(value).all() for value in loaded.values())


def test_a_head_takes_the_inputs_of_its_model_by_name_or_place():
    names = list(inspect.signature(qkv.modeling.QkvDecoderForTokenClassification.forward).parameters)
    given = ["input_ids", "attention_mask", "position_ids", "past_key_values", "inputs_embeds"]
    assert names == ["self", *given, "labels", "num_items_in_batch", "use_cache", "kwargs"]
    model, ids = qkv.modeling.QkvDecoderForTokenClassification(decoder(num_labels=2)), torch.tensor([[3, 4]])
    labels = torch.tensor([[0, 1]])
    assert torch.equal(model(ids, None, None, None, None, labels).loss, model(input_ids=ids, labels=labels).loss)
    for wrong in (lambda: model(*[None] * 9), lambda: model(ids, input_ids=ids)):
        with pytest.raises(TypeError):
            wrong()


TIED = {
    "QkvEncoderForMaskedLM": {"lm_head.decoder.weight": "model.embed_tokens.weight"},
    "QkvEncoderForPreTraining": {"lm_head.decoder.weight": "model.embed_tokens.weight"},
    "QkvDecoderForCausalLM": {"lm_head.weight": "model.embed_tokens.weight"},
    "QkvEncoderDecoderForConditionalGeneration": {"lm_head.weight": "model.decoder.embed_tokens.weight"},
    "QkvSpeechEncoderDecoderForSpeechSeq2Seq": {"lm_head.weight": "model.decoder.embed_tokens.weight"},
    "QkvRecurrentForConditionalGeneration": {"lm_head.weight": "model.decoder.embed_tokens.weight"},
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
def test_ties(name, tie):
    model = build(name, tie_word_embeddings=tie)
    for tied, source in TIED.get(name, {}).items():
        assert (model.get_parameter(tied) is model.get_parameter(source)) == tie
    if name not in ("QkvEncoderDecoderModel", "QkvEncoderDecoderEncoderModel"):  # shared tables are another decision
        assert model.get_expanded_tied_weights_keys() == (TIED.get(name, {}) if tie else {})


@pytest.mark.parametrize("given", [{}, {"one": None, "other": None}, {"one": 1, "other": 2}])
def test_exactly_one(given):
    with pytest.raises(ValueError, match="give exactly one of"):
        exactly_one(**given)
    exactly_one(one=1, other=None)


def test_the_main_input_stands_on_the_class():
    names = {name: getattr(qkv, name).main_input_name for name in CLASSES}
    expected = {
        "Image": "pixel_values",
        "Detection": "pixel_values",
        "Audio": "input_features",
        "Speech": "input_features",
    }
    assert names == {
        name: next((given for kind, given in expected.items() if name.startswith(f"Qkv{kind}")), "input_ids")
        for name in CLASSES
    }


@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_the_plan_of_sharding_names_modules_and_no_weight_twice(case):
    model = case.build()
    plan = _resolve_tied_embed_lm_head_plan(model.fsdp_plan, model)
    for name in plan:
        model.get_submodule(name.removesuffix(".*"))  # raises where there is none
    sharded = [
        parameter for name in model._expand_parallel_plan(plan) for parameter in model.get_submodule(name).parameters()
    ]
    assert sharded
    assert len(set(sharded)) == len(sharded)
