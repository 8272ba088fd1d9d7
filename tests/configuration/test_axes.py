"""Each word of an axis is a row of its table, each row a word, and each is in the docstring of its field."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from transformers.activations import ACT2FN

from qkv.configuration import axes
from qkv.configuration.configuration_base import QkvConfig, model_configs
from qkv.modeling.experts import FEED_FORWARDS
from qkv.modeling.experts.mixture import ROUTERS
from qkv.modeling.feed_forward import ACTIVATIONS
from qkv.modeling.frontends import FRONTENDS
from qkv.modeling.frontends.detection import DETECTION_FRONTENDS
from qkv.modeling.frontends.spectrogram import CONVOLUTIONS, FRAME_LAYOUTS, FRAME_PADDINGS
from qkv.modeling.heads.contact import CONTACT_HEADS
from qkv.modeling.heads.head import POOLINGS
from qkv.modeling.kernels import CROSS_KERNELS, KERNELS
from qkv.modeling.kernels.linear import FEATURE_MAPS
from qkv.modeling.masks.pattern import PATTERNS
from qkv.modeling.modeling_speech_encoder_decoder import TRANSCRIPTIONS
from qkv.modeling.normalization import GAINS, NORM_POSITIONS, NORMS, QUERY_KEY_NORMS
from qkv.modeling.pair.outer_product import OUTER_PRODUCTS
from qkv.modeling.position import POSITIONS
from qkv.modeling.recurrent.attention_decoder import ATTENTION_DECODERS, READOUTS
from qkv.modeling.recurrent.cells import CELLS
from qkv.scripts.recipes.fields.keys import explained

# {axes whose words are the rows of one table: the table}
TABLES: dict[str, dict[str, Any]] = {
    "PatchPositionName TextPositionName ImagePositionName ObjectQueryPositionName": POSITIONS,
    "PairedTextPoolingName ImagePoolingName": POOLINGS,
    "PatternName": PATTERNS,
    "KernelName": KERNELS,
    "ParallelKernelName": {word: row for word, row in CROSS_KERNELS.items() if word != "softmax"},
    "FeatureMapName": FEATURE_MAPS,
    "NormName": NORMS,
    "NormPositionName": NORM_POSITIONS,
    "NormGainName": GAINS,
    "QueryKeyNormName": QUERY_KEY_NORMS,
    "FeedForwardName": FEED_FORWARDS,
    "RouterName": ROUTERS,
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


def words_of(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from words_of(part)
    elif annotation in (getattr(axes, name) for names in TABLES for name in names.split()):
        yield from get_args(annotation)


@pytest.mark.parametrize("config_class", model_configs(), ids=lambda each: each.__name__)
def test_the_docstring_of_a_field_has_each_of_its_words(config_class: type[QkvConfig]) -> None:
    bases = [base for base in reversed(config_class.__mro__) if issubclass(base, QkvConfig)]
    said = {name: meaning for base in bases for name, (_, meaning) in explained(base.__doc__).items()}
    words = {(each.name, word) for each in dataclasses.fields(config_class) for word in words_of(each.type)}
    assert words or config_class.sub_configs
    assert not {(name, word) for name, word in words if f"`{word}`" not in said[name]}
