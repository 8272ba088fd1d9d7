"""Attention layers are found by their code, and named as transformers names its outputs."""

import pytest
import torch

import qkv
import tiny
from errors import raises_sentence
from families.attentions import FAMILIES, built
from qkv.scripts.attention.layers import attention_layers, chosen_layers


@pytest.mark.parametrize("name", FAMILIES)
def test_stacks_are_those_of_the_outputs(name: str) -> None:
    model, _, names = built(name)
    layers = [layer for layer in attention_layers(model) if layer.is_of_tokens]
    assert {layer.stack for layer in layers} == set(names)
    for stack in names:
        own = [layer for layer in layers if layer.stack == stack]
        assert [layer.number for layer in own] == list(range(len(own)))
        assert all(model.get_submodule(layer.path) is layer.module for layer in own)


def test_two_stacks_of_one_name_are_called_by_their_paths() -> None:
    pair = torch.nn.ModuleDict({name: qkv.QkvEncoderModel(tiny.encoder()) for name in ("left", "right")})
    assert [layer.stack for layer in attention_layers(pair)] == ["left.layers"] * 2 + ["right.layers"] * 2


def test_layers_are_chosen_by_number_slice_and_stack() -> None:
    layers = attention_layers(built("qkv t5")[0])

    def names(wanted: object) -> list[tuple[str, int]]:
        return [(layer.stack, layer.number) for layer in chosen_layers(layers, wanted)]  # type: ignore[arg-type]

    assert len(names(None)) == 6
    assert names(-1) == [("encoder", 1), ("decoder", 1), ("cross", 1)]
    assert names(slice(1)) == [("encoder", 0), ("decoder", 0), ("cross", 0)]
    assert names({"cross": [0, -1], "encoder": None}) == [("encoder", 0), ("encoder", 1), ("cross", 0), ("cross", 1)]
    with raises_sentence("layers", "2"):
        names({"encoder": 2})
    with raises_sentence("layers", "'text'", "cross"):
        names({"text": 0})
