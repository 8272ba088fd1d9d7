"""A wrong field of any config is a ValueError of one sentence, with the field and its value, and leaves a config as it was.

Mistakes are drawn from all fields of all configs: misspelt names, fields of other configs, values of another type, numbers
out of bounds and unknown words.
"""

import math
import re
from collections.abc import Callable
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, PreTrainedConfig

import qkv
from errors import raises_sentence
from qkv.configuration import CONFIGS
from qkv.configuration.configuration_base import HUGGING_FACE_EXTRAS, QkvConfig, model_configs
from qkv.configuration.fields import literal_words

THEIRS = {field.name for field in fields(PreTrainedConfig)}
CLASSES = [config_class for config_class in model_configs() if not config_class.sub_configs]
FIELDS = {kind: [field for field in fields(kind) if field.name not in THEIRS] for kind in CLASSES}
EVERY_NAME = sorted({field.name for own in FIELDS.values() for field in own} - HUGGING_FACE_EXTRAS)
# Numbers that may be 0, may have any sign, and ids, which only encoder-decoders compare with their vocabulary.
COUNTS = frozenset(
    "type_vocab_size position_offset random_blocks_seed num_global_tokens text_length num_recycles "
    "relative_position_bins num_distance_bins mask_time_min_masks mask_feature_min_masks "
    "shared_expert_intermediate_size linear_conv_kernel_dim num_register_tokens".split()
)
SIGNED = {"logit_scale_init_value"}
some_mistakes = settings(max_examples=250, derandomize=True, deadline=None)


class Mistake(NamedTuple):
    config_class: type[QkvConfig]
    name: str
    value: Any
    mentions: tuple[str, ...]


def admits(annotation: Any, value: Any) -> bool:
    """Return whether a value is of a type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return any(admits(each, value) for each in inner)
    if origin is Literal:
        return isinstance(value, str)
    if origin in (list, tuple):
        return isinstance(value, origin) and all(admits(inner[0], each) for each in value)
    return value is None if annotation is type(None) else type(value) is (origin or annotation)


@st.composite
def misspelt(draw: Any) -> Mistake:
    kind = draw(st.sampled_from(CLASSES))
    name = draw(st.sampled_from(FIELDS[kind])).name
    place = draw(st.integers(1, len(name) - 2))
    letter = name[place]
    typo = draw(st.sampled_from([name[:place] + name[place + 1 :], name[:place] + letter + name[place:], name.upper()]))
    assume(typo != name and typo not in kind.known_fields() | HUGGING_FACE_EXTRAS)
    return Mistake(kind, typo, 8, (kind.__name__, repr(typo), repr(name)))


@st.composite
def foreign(draw: Any) -> Mistake:
    kind, name = draw(st.sampled_from(CLASSES)), draw(st.sampled_from(EVERY_NAME))
    assume(name not in kind.known_fields())
    return Mistake(kind, name, 88, (kind.__name__, name))


@st.composite
def of_another_type(draw: Any) -> Mistake:
    kind = draw(st.sampled_from(CLASSES))
    field = draw(st.sampled_from(FIELDS[kind]))
    value = draw(st.sampled_from(["8", 8, 8.5, True, None, ["8"], [8], {"a": 8}]))
    assume(not admits(field.type, value))
    assume(field.name != "query_key_norm" or not isinstance(value, bool))  # the words of earlier configs
    assume(not (isinstance(value, str | list) and literal_words(field.type)))
    return Mistake(kind, field.name, value, (f"{field.name}={value!r}", type(value).__name__))


@st.composite
def out_of_bounds(draw: Any) -> Mistake:
    kind = draw(st.sampled_from(CLASSES))
    field = draw(st.sampled_from(FIELDS[kind]))
    number = draw(st.sampled_from([-1, 0, -0.5, 1.0, math.nan, math.inf]))
    assume(admits(field.type, number) and not field.name.endswith("_token_id") and field.name not in SIGNED)
    share = isinstance(field.default, float) and field.name.endswith(
        ("dropout", "drop", "rate", "prob", "smoothing", "coef")
    )
    allowed = number == 0 and (share or field.name in COUNTS) or number == 1.0 and not share
    assume(not allowed and not field.name.endswith("coefficient"))
    return Mistake(kind, field.name, number, (f"{field.name}={number!r}",))


@st.composite
def unknown_words(draw: Any) -> Mistake:
    kind = draw(st.sampled_from(CLASSES))
    field = draw(st.sampled_from([field for field in FIELDS[kind] if literal_words(field.type)]))
    words = literal_words(field.type)
    word = draw(st.sampled_from(words))
    value = draw(st.sampled_from([word + word[-1], "nonsense"]))
    assume(value not in words)
    return Mistake(kind, field.name, value, (f"{field.name}={value!r}", *words))


MISTAKES = {"misspelt": misspelt(), "foreign": foreign(), "type": of_another_type(), "bounds": out_of_bounds()}
MISTAKES["words"] = unknown_words()


@pytest.mark.parametrize("kind", MISTAKES)
@pytest.mark.costly(2)
def test_a_mistake_is_one_sentence_with_the_field(kind: str) -> None:
    @some_mistakes
    @given(MISTAKES[kind])
    def check(mistake: Mistake) -> None:
        config_class, name, value, mentions = mistake
        with raises_sentence(*mentions):
            config_class(**{name: value})
        with raises_sentence(*mentions):
            config_class.from_dict({"model_type": config_class.model_type}, **{name: value})

    check()


def accepts(check: Callable[[int], None], value: int) -> bool:
    try:
        check(value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("config_class", CLASSES, ids=lambda kind: kind.__name__)
def test_counts_begin_at_one_and_layers_end_at_ten_thousand(config_class: type[QkvConfig]) -> None:
    """A size of 1 is a model, too, if a small one."""
    counts = [field for field in FIELDS[config_class] if "validator" in field.metadata and admits(field.type, 1)]
    counts = [field for field in counts if not admits(field.type, 0.5)]
    assert counts
    for field in counts:
        check, least = field.metadata["validator"], 0 if field.name in COUNTS else 1
        assert accepts(check, least) and not accepts(check, least - 1), field.name
        if field.name.endswith("_layers"):
            assert accepts(check, 10_000) and not accepts(check, 10_001), field.name


@pytest.mark.parametrize("kind", ["type", "words"])
def test_a_refused_edit_changes_nothing(kind: str) -> None:
    @some_mistakes
    @given(MISTAKES[kind])
    def check(mistake: Mistake) -> None:
        config = mistake.config_class()
        before = config.to_dict()
        with raises_sentence(*mistake.mentions):
            setattr(config, mistake.name, mistake.value)
        assert config.to_dict() == before

    check()


@pytest.mark.parametrize("part", [{"hiden_size": 8}, {"hidden_size": "8"}, {"norm_eps": 0}, {"position": "ropee"}])
@pytest.mark.parametrize("config_class", [kind for kind in CONFIGS if kind.sub_configs], ids=lambda kind: kind.__name__)
def test_parts_are_checked_flat_and_by_their_names(config_class: type[QkvConfig], part: dict[str, Any]) -> None:
    (name,) = part
    for fields_ in (part, *({key: part} for key in config_class.sub_configs)):
        with raises_sentence(name) as caught:
            config_class(**fields_)
        assert caught.value.__cause__ is None


def test_words_of_transformers_fields_are_checked() -> None:
    with raises_sentence("problem_type='regresion'", "regression"):
        qkv.QkvEncoderConfig(problem_type="regresion")
    for value in ("float23", 5, {"encoder": 0.5}, {"encoder": "float33"}):
        with raises_sentence("dtype", "float16"):
            qkv.QkvEncoderConfig(dtype=value)


@pytest.mark.parametrize("config_class", CONFIGS, ids=lambda kind: kind.__name__)
def test_lengths_of_lists_are_bounded(config_class: type[QkvConfig]) -> None:
    """A billion layers or labels take the memory before a model is made."""
    for name in {"num_labels", "num_hidden_layers"} & ({"num_labels"} | {field.name for field in fields(config_class)}):
        for value in (0, 10**9):
            with raises_sentence(f"{name}={value}", "at most"):
                config_class.from_dict({**config_class().to_dict(), name: value})


@pytest.mark.parametrize("config_class", CLASSES, ids=lambda kind: kind.__name__)
def test_every_field_is_explained_and_settings_of_generation_pass(config_class: type[QkvConfig]) -> None:
    said = "\n".join(str(base.__doc__) for base in config_class.__mro__ if issubclass(base, QkvConfig))
    assert [field.name for field in FIELDS[config_class] if not re.search(rf"^ +{field.name}: [A-Z]", said, re.M)] == []
    for name in GenerationConfig._get_default_generation_params():
        config_class.check_spelling(name)
