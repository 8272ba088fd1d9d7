"""Every family starts and describes itself as transformers expects; ties are in `test_contract.py`."""

import inspect
import math

import pytest
import torch
from torch import nn
from transformers.distributed.fsdp import _resolve_tied_embed_lm_head_plan

import qkv.modeling
import tiny
from comparison import decoder
from qkv.configuration.axes import DISENTANGLED_POSITIONS
from qkv.modeling.attention import Gate
from qkv.modeling.base import QkvPreTrainedModel
from qkv.modeling.modeling_pair import PairHead
from qkv.modeling.normalization import NORMS
from qkv.modeling.position import DETECTION_POSITIONS, POSITIONS, Position

pytestmark = pytest.mark.upstream

CASES = {case.model_class.__name__: case for case in reversed(tiny.CASES)}
PAIRS = qkv.QkvPairModel, PairHead  # models of residues and their pairs, folds among them
INPUTS = {"Image": "pixel_values", "Detection": "pixel_values", "Audio": "input_features", "Speech": "input_features"}


def test_every_class_has_a_case():
    assert CASES.keys() == {name for name in qkv.modeling.__all__ if name.startswith("Qkv")}


@pytest.mark.parametrize("name", CASES)
def test_flags(name):
    model, attends = CASES[name].build(), "Recurrent" not in name
    assert isinstance(model, QkvPreTrainedModel)
    # Losses take the count of the whole step; Trainer must not guess it from the signature.
    assert model.accepts_loss_kwargs
    assert model.supports_gradient_checkpointing
    assert model._supports_sdpa == attends
    # A bias for each pair of residues takes gradients, which flex attention sums up one by one.
    assert model._supports_flex_attn == (attends and not isinstance(model, PAIRS))
    assert model._supports_flash_attn == (attends and not isinstance(model, PAIRS))
    assert set(model._no_split_modules) <= {type(module).__name__ for module in model.modules()}
    read = next((given for kind, given in INPUTS.items() if name.startswith(f"Qkv{kind}")), "input_ids")
    assert type(model).main_input_name == read


@pytest.mark.parametrize("is_main", [True, False])
def test_code_is_saved_by_the_main_process_alone(tmp_path, is_main):
    tiny.CASES[0].build().save_pretrained(tmp_path, is_main_process=is_main)
    assert bool([*tmp_path.glob("*.py")]) == is_main


# Recurrent cells, the halves of CLIP and backbones start in their own way, which their tests know.
STARTED = [case for name, case in CASES.items() if not name.startswith(("QkvRecurrent", "QkvDual", "QkvDetection"))]
STARTED += [case for case in tiny.CASES if case.name == "DetectionForObjectDetection-patches"]


@pytest.mark.parametrize("case", STARTED, ids=lambda case: case.name)
@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_initialisation(case, spread):
    """Matrices and tables are normal with the config's spread, biases zero, gains one, gates nearly open."""
    model = case.model_class(case.config(initializer_range=spread, hidden_size=96, intermediate_size=128))
    norms = [path for path, module in model.named_modules() if isinstance(module, tuple(NORMS.values()))]
    gates = [path for path, module in model.named_modules() if isinstance(module, Gate)]
    gains = {*(f"{path}.weight" for path in norms), *(f"{path}.bias" for path in gates)}
    for key, parameter in model.named_parameters():
        if key in gains:
            assert torch.equal(parameter, torch.ones_like(parameter)), key
        elif key.endswith("bias") or "mask_token" in key or key.removesuffix(".weight") in gates:
            assert torch.equal(parameter, torch.zeros_like(parameter)), key
        elif key.endswith("point_weights"):
            assert torch.allclose(parameter.exp(), torch.full_like(parameter, math.e - 1)), key
        elif parameter.numel() > 900:
            assert abs(parameter.std().item() / spread - 1) < 0.1, key
            assert abs(parameter.mean().item()) < 4 * spread / parameter.numel() ** 0.5, key
        else:
            assert 0 < parameter.std().item() < 3 * spread, key


def without_a_checkpoint(config):
    return qkv.modeling.QkvDecoderForCausalLM.from_pretrained(None, config=config, state_dict={}).state_dict()


@pytest.mark.parametrize("word", sorted(POSITIONS.keys() - {*DETECTION_POSITIONS, *DISENTANGLED_POSITIONS, "rope_2d"}))
def test_position_encodings_that_a_checkpoint_lacks_are_initialised(word):
    config = decoder(position=word, **{"text_length": 4, "grid_columns": 3} if word == "grid" else {})
    fresh, loaded = qkv.modeling.QkvDecoderForCausalLM(config).state_dict(), without_a_checkpoint(config)
    assert all(torch.isfinite(value).all() for value in loaded.values())
    drawn = [{name: value.std(correction=0) > 0 for name, value in each.items()} for each in (loaded, fresh)]
    assert drawn[0] == drawn[1]


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


@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_the_plan_of_sharding_names_modules_and_no_weight_twice(case):
    model = case.build()
    plan = _resolve_tied_embed_lm_head_plan(model.fsdp_plan, model)
    for name in plan:
        model.get_submodule(name.removesuffix(".*"))  # raises where there is none
    parts = map(model.get_submodule, model._expand_parallel_plan(plan))
    sharded = [parameter for part in parts for parameter in part.parameters()]
    assert sharded
    assert len(set(sharded)) == len(sharded)
