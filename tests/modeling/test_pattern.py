"""Patterns over rows and columns reach what they should, and windows end where they should."""

import pytest
import torch

import reference
from comparison import decoder, draw, jittered
from qkv.modeling.masking import MaskSizes, build_masks
from qkv.modeling.modeling_decoder import QkvDecoderModel

LENGTH = 13


@pytest.mark.parametrize("words", [["row", "column"], ["column", "row"]])
def test_rows_and_columns_reach_everything_in_two_steps(words):
    """Why DALL-E alternates them; what they are for needs no text."""
    config = decoder(pattern=words, num_hidden_layers=2, position="none", grid_columns=4)
    model, inputs = jittered(QkvDecoderModel(config)).eval(), draw(1, LENGTH, 6)
    outputs = model(inputs_embeds=inputs).last_hidden_state[0]
    for place in range(LENGTH):
        (gradient,) = torch.autograd.grad(outputs[place].square().sum(), inputs, retain_graph=True)
        assert (gradient[0].abs().amax(-1) > 0).tolist() == [key <= place for key in range(LENGTH)]


@pytest.mark.parametrize("kernel", [1, 3, 5, 9])
def test_windows_wider_than_a_row(kernel):
    config = decoder(pattern="convolutional", text_length=2, grid_columns=4, grid_kernel=kernel)
    wanted = [
        [key <= query and reference.convolutional(query, key, 2, 4, kernel) for key in range(LENGTH)]
        for query in range(LENGTH)
    ]
    sizes = MaskSizes.of(config, LENGTH, None)
    mask = build_masks(config, torch.zeros(1, LENGTH, 6), sizes, attention_implementation="eager").masks[
        "convolutional"
    ]
    assert torch.equal(mask[0, 0] == 0, torch.tensor(wanted))
