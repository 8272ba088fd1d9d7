"""Each word of an axis is a row of its table, and each row a word."""

from typing import Any, get_args

import pytest
from transformers.activations import ACT2FN

from qkv.configuration import axes
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

# {axes whose words are the rows of one table: the table}
TABLES: dict[str, dict[str, Any]] = {
    "PositionName ImagePositionName ObjectQueryPositionName": POSITIONS,
    "TextPoolingName ImagePoolingName": POOLINGS,
    "PatternName": PATTERNS,
    "KernelName": KERNELS,
    "ParallelKernelName": {word: row for word, row in CROSS_KERNELS.items() if word != "softmax"},
    "FeatureMapName": FEATURE_MAPS,
    "NormName": NORMS,
    "FeedForwardName": FEED_FORWARDS,
    "FrontendName": FRONTENDS,
    "DetectionFrontendName": DETECTION_FRONTENDS,
    "ContactHeadName": CONTACT_HEADS,
    "OuterProductName": OUTER_PRODUCTS,
    "CellName": CELLS,
    "AlignmentName": ATTENTION_DECODERS,
    "ReadoutName": READOUTS,
    "ConvolutionName": CONVOLUTIONS,
    "FrameLayoutName": FRAME_LAYOUTS,
    "FramePaddingName": FRAME_PADDINGS,
    "TranscriptionName": TRANSCRIPTIONS,
}


def words(names: str) -> set[str]:
    return {word for name in names.split() for word in get_args(getattr(axes, name))}


@pytest.mark.parametrize("names", TABLES)
def test_words_are_rows(names: str) -> None:
    assert words(names) == {*TABLES[names]}


def test_activations_are_those_of_transformers_and_our_own() -> None:
    assert words("ActivationName") <= set(ACTIVATIONS) and set(ACTIVATIONS) - set(ACT2FN) == {"gelu_bloom"}


def test_every_axis_has_a_table_or_is_part_of_one_that_has() -> None:
    others = {name for name in vars(axes) if name.endswith("Name")} - {*" ".join(TABLES).split()}
    assert {name for name in others if not any(words(name) < words(names) for names in TABLES)} == {
        "ActivationName",
        "ProjectionName",
    }
