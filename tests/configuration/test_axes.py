"""The words are the rows: whatever a config can name, a table has, and the other way round."""

import re
from typing import Any, get_args

import pytest
from transformers.activations import ACT2FN

from qkv.configuration import axes
from qkv.configuration.fields import literal_words
from qkv.modeling.feed_forward import ACTIVATIONS, FEED_FORWARDS
from qkv.modeling.frontends import FRONTENDS
from qkv.modeling.frontends.detection import DETECTION_FRONTENDS
from qkv.modeling.frontends.spectrogram import CONVOLUTIONS, FRAME_LAYOUTS, FRAME_PADDINGS
from qkv.modeling.heads.contact import CONTACT_HEADS
from qkv.modeling.heads.head import POOLINGS
from qkv.modeling.kernels import CROSS_KERNELS, KERNELS
from qkv.modeling.kernels.linear import FEATURE_MAPS
from qkv.modeling.masks.pattern import PATTERNS
from qkv.modeling.modeling_speech_encoder_decoder import TRANSCRIPTIONS
from qkv.modeling.normalization import NORMS
from qkv.modeling.pair.outer_product import OUTER_PRODUCTS
from qkv.modeling.position import POSITIONS
from qkv.modeling.recurrent.attention_decoder import ATTENTION_DECODERS, READOUTS
from qkv.modeling.recurrent.cells import CELLS

# {table: the axes whose words are its rows}
TABLES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    (POSITIONS, ("PositionName", "ImagePositionName", "ObjectQueryPositionName")),
    (PATTERNS, ("PatternName",)),
    (KERNELS, ("KernelName",)),
    (FEATURE_MAPS, ("FeatureMapName",)),
    (NORMS, ("NormName",)),
    (FEED_FORWARDS, ("FeedForwardName",)),
    (FRONTENDS, ("FrontendName",)),
    (DETECTION_FRONTENDS, ("DetectionFrontendName",)),
    (POOLINGS, ("TextPoolingName", "ImagePoolingName")),
    (CONTACT_HEADS, ("ContactHeadName",)),
    (OUTER_PRODUCTS, ("OuterProductName",)),
    (CELLS, ("CellName",)),
    (ATTENTION_DECODERS, ("AlignmentName",)),
    (READOUTS, ("ReadoutName",)),
    (CONVOLUTIONS, ("ConvolutionName",)),
    (FRAME_LAYOUTS, ("FrameLayoutName",)),
    (FRAME_PADDINGS, ("FramePaddingName",)),
    (TRANSCRIPTIONS, ("TranscriptionName",)),
]


@pytest.mark.parametrize(("table", "names"), TABLES, ids=lambda value: str(value) if isinstance(value, tuple) else "")
def test_words_of_an_axis_are_the_rows_of_its_table(table: dict[str, Any], names: tuple[str, ...]) -> None:
    assert {word for name in names for word in get_args(getattr(axes, name))} == set(table)


def test_every_kernel_but_recurrent_ones_has_a_cross_attention() -> None:
    assert set(CROSS_KERNELS) == set(KERNELS) - set(axes.RECURRENT_KERNELS)


def test_activations_are_those_of_transformers_and_our_own() -> None:
    assert set(get_args(axes.ActivationName)) <= set(ACTIVATIONS)
    assert set(ACTIVATIONS) - set(ACT2FN) == {"gelu_bloom"}


def test_every_axis_is_compared_with_its_table() -> None:
    words = {name for name in vars(axes) if name.endswith("Name") and literal_words(getattr(axes, name))}
    tabled = {name for _, names in TABLES for name in names}
    # Words of a part of an axis, activations of transformers, modules of attention.
    parts = {
        name
        for name in words
        if re.fullmatch(
            r"(Table|Sinusoidal|Rotary|Bias)PositionName|(Mask\w+|Grid)PatternName|(State|Parallel|Recurrent)KernelName",
            name,
        )
    }
    assert words - tabled - parts == {"ActivationName", "ProjectionName"}
