"""Attention layers are found by their code, and named as transformers names its outputs."""

import torch

import qkv
import tiny
from errors import raises_sentence
from families.attentions import built
from qkv.scripts.attention.layers import attention_layers, chosen_layers


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
