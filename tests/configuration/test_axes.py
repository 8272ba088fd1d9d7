"""The words are the rows: whatever a config can name, a table has, and the other way round."""

from typing import get_args

import pytest
from transformers.activations import ACT2FN

from qkv.configuration import axes
from qkv.configuration.configuration_detection import QkvSlotDecoderConfig
from qkv.modeling.feed_forward import ACTIVATIONS, FEED_FORWARDS
from qkv.modeling.frontend import DETECTION_FRONTENDS, FRONTENDS
from qkv.modeling.head import POOLINGS
from qkv.modeling.kernel import KERNELS
from qkv.modeling.modeling_encoder_decoder_speech import TRANSCRIPTIONS
from qkv.modeling.normalization import NORMS
from qkv.modeling.pattern import PATTERNS
from qkv.modeling.position import POSITIONS
from qkv.modeling.reader import READERS, READOUTS
from qkv.modeling.recurrent import CELLS
from qkv.modeling.spectrogram import CONVOLUTIONS, FRAME_LAYOUTS, FRAME_PADDINGS

TABLES = {
    "PositionName": POSITIONS,
    "PatternName": PATTERNS,
    "KernelName": KERNELS,
    "NormName": NORMS,
    "FeedForwardName": FEED_FORWARDS,
    "FrontendName": FRONTENDS,
    "PoolingName": POOLINGS,
    "CellName": CELLS,
    "AlignmentName": READERS,
    "ReadoutName": READOUTS,
    "ConvolutionName": CONVOLUTIONS,
    "FrameLayoutName": FRAME_LAYOUTS,
    "FramePaddingName": FRAME_PADDINGS,
    "TranscriptionName": TRANSCRIPTIONS,
}
# Rows that only the parts of a detector name.
OF_DETECTORS = {"PositionName": ("sinusoidal_2d", "sinusoidal_2d_and_input", "slots")}
# Words of a part of an axis.
PARTS = {
    *("TablePositionName", "SinusoidalPositionName", "RotaryPositionName", "BiasPositionName"),
    *("ImagePositionName", "SlotPositionName", "MasklessPatternName", "MaskedPatternName"),
}


@pytest.mark.parametrize("axis", TABLES)
def test_words_of_an_axis_are_the_rows_of_its_table(axis: str) -> None:
    assert (*get_args(getattr(axes, axis)), *OF_DETECTORS.get(axis, ())) == tuple(TABLES[axis])


def test_words_of_detectors_are_rows_too() -> None:
    assert {*get_args(axes.ImagePositionName), *get_args(axes.SlotPositionName)} <= set(POSITIONS)
    assert (*get_args(axes.ImageFrontendName), QkvSlotDecoderConfig.frontend) == tuple(DETECTION_FRONTENDS)


def test_activations_are_those_of_transformers_and_our_own() -> None:
    assert set(get_args(axes.ActivationName)) <= set(ACTIVATIONS)
    assert set(ACTIVATIONS) - set(ACT2FN) == {"gelu_bloom"}


def test_every_axis_is_compared_with_its_table() -> None:
    names = {name for name in vars(axes) if name.endswith("Name")}
    assert names == {*TABLES, *PARTS, "ActivationName", "ImageFrontendName"}
