"""Of models of pairs, what is captured in chunks is the eager attention of each grid, and residues alone are shown."""

from typing import Any

import torch

import qkv
import tiny
from errors import raises_sentence
from qkv.modeling.pair.axial_attention import AxialAttention
from tiny import jitter

STACKS = ("encoder", "column", "starting", "ending")


def model_of(kind: str, **fields: Any) -> Any:
    torch.manual_seed(0)
    return jitter(qkv.QkvPairModel(tiny.pair(kind, **fields))).eval()


@torch.no_grad()
def test_grids_are_captured_whole() -> None:
    model, inputs = model_of("evoformer", chunk_size=4), tiny.alignment()
    expected: dict[Any, Any] = {}

    def attend_eagerly(module: Any, given: Any, options: Any, output: Any) -> None:
        eager = {"chunk_size": 99, "attention_implementation": "eager", "output_attentions": True}
        expected[module] = AxialAttention.forward(module, *given, **eager)[1]

    # Before the capture, which would record it.
    modules = [module for module in model.modules() if isinstance(module, AxialAttention)]
    handles = [module.register_forward_hook(attend_eagerly, with_kwargs=True) for module in modules]
    plain = model(**inputs)
    for handle in handles:
        handle.remove()
    wanted = dict.fromkeys(STACKS)
    with qkv.capture_attention(model, inputs, layers=wanted, heads=[1], queries=[2], also=["norms"]) as captured:
        pass
    assert torch.equal(captured.outputs.pair_hidden_state, plain.pair_hidden_state)
    parts = {
        "encoder": "row_attn",
        "column": "column_attn",
        "starting": "starting.attention",
        "ending": "ending.attention",
    }
    for stack, path in parts.items():
        for layer in range(2):
            (record,) = captured.select(stack, layer)
            weights = expected[model.get_submodule(f"blocks.{layer}.{path}")].flatten(0, 1)[:, 1:2, 2:3]
            torch.testing.assert_close(record.weights, weights, rtol=1e-5, atol=1e-6)
            assert record.norms is not None and record.norms.shape == weights.shape
    assert len(captured) == 8


@torch.no_grad()
def test_a_chain_is_the_first_sequence_and_the_last_pass_is_shown() -> None:
    model, inputs = model_of("evoformer", num_recycles=1), tiny.alignment()
    attentions = model(**inputs, output_attentions=True).attentions
    (stack,) = qkv.attend(model, inputs, row=1).stacks
    assert stack.name == "encoder" and stack.layers == [0, 1]
    length = int(inputs["attention_mask"][1].sum())
    expected = torch.stack([weights[1, 0, :, :length, :length] for weights in attentions])
    torch.testing.assert_close(torch.from_numpy(stack.weights), expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_had_is_a_sentence() -> None:
    model = model_of("esmfold")
    with raises_sentence("pairs", "gradients"), qkv.capture_attention(model, also=["gradients"]):
        pass
