"""Papers as differences from the defaults: each preset returns a config and takes any field as a keyword.

Their fields are in `presets.yaml`.
"""

from collections.abc import Callable, Collection
from copy import deepcopy
from pathlib import Path

import yaml

from .configuration_base import Config
from .configuration_decoder import QkvDecoderConfig
from .configuration_detection import QkvDetectionConfig
from .configuration_dual_encoder import QkvDualEncoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import QkvEncoderDecoderConfig
from .configuration_image_encoder import QkvImageEncoderConfig
from .configuration_pair import QkvPairConfig
from .configuration_recurrent import QkvRecurrentConfig
from .configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig
from .fields import Fields

# The loader in C, where PyYAML was built with it, takes a fifth of the time of every import.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TABLE: dict[str, Fields] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), LOADER)


def names() -> list[str]:
    """List every preset, by the name of its function."""
    return sorted(TABLE)


def fields_of(name: str) -> Fields:
    """Return the fields of a preset, with those of the preset that it is like."""
    own = deepcopy(TABLE[name])
    like = own.pop("like", None)
    return {**(fields_of(like) if like else {}), **own}


def with_differences(preset_fields: Fields, differences: Fields, parts: Collection[str]) -> Fields:
    """Return the fields of a preset with differences, which may be given flat or for a part."""
    for part in preset_fields.keys() & parts:
        kept = {name: value for name, value in preset_fields[part].items() if name not in differences}
        preset_fields[part] = {**kept, **differences.pop(part, {})}
    return {**preset_fields, **differences}


def preset(config_class: type[Config], name: str, **follows: Callable[[Fields], object]) -> Callable[..., Config]:
    """Return the function of a preset, described by its paper; some fields may follow from others."""
    own = fields_of(name)
    paper = own.pop("paper")

    def build(**differences: object) -> Config:
        given = with_differences(deepcopy(own), differences, config_class.sub_configs)
        followed = {field: follow(given) for field, follow in follows.items() if field not in differences}
        return config_class(**given | followed)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = paper
    return build


def dalle_pattern(given: Fields) -> list[str]:
    """Return rows with a column in four layers, and windows in the last layer."""
    layers = ["column" if layer % 4 == 1 else "row" for layer in range(given["num_hidden_layers"] - 1)]
    return [*layers, "convolutional"]


def in_turn(*words: str) -> Callable[[Fields], list[str]]:
    """Return a function that gives the layers these words in turn."""
    return lambda given: [words[layer % len(words)] for layer in range(given["num_hidden_layers"])]


bert_base = preset(QkvEncoderConfig, "bert_base")
bert_large = preset(QkvEncoderConfig, "bert_large")
roberta_base = preset(QkvEncoderConfig, "roberta_base")
longformer_base = preset(QkvEncoderConfig, "longformer_base")
bigbird_base = preset(QkvEncoderConfig, "bigbird_base")
modernbert_base = preset(QkvEncoderConfig, "modernbert_base", pattern=in_turn("full", "sliding", "sliding"))
deberta_v3_base = preset(QkvEncoderConfig, "deberta_v3_base")
eurobert_210m = preset(QkvEncoderConfig, "eurobert_210m")
esm2_t6_8m = preset(QkvEncoderConfig, "esm2_t6_8m")
evoformer_small = preset(QkvPairConfig, "evoformer_small")
gpt2 = preset(QkvDecoderConfig, "gpt2")
gpt2_medium = preset(QkvDecoderConfig, "gpt2_medium")
gpt2_large = preset(QkvDecoderConfig, "gpt2_large")
gpt2_xl = preset(QkvDecoderConfig, "gpt2_xl")
llama_3_2_1b = preset(QkvDecoderConfig, "llama_3_2_1b")
olmo2_1b = preset(QkvDecoderConfig, "olmo2_1b")
smollm3_3b = preset(QkvDecoderConfig, "smollm3_3b", position=in_turn("rope", "rope", "rope", "none"))
gemma3_1b = preset(
    QkvDecoderConfig,
    "gemma3_1b",
    pattern=in_turn(*["sliding"] * 5, "full"),
    embedding_multiplier=lambda given: given["hidden_size"] ** 0.5,
)
granite3_2b = preset(QkvDecoderConfig, "granite3_2b")
olmoe_1b_7b = preset(QkvDecoderConfig, "olmoe_1b_7b")
gpt_oss_20b = preset(QkvDecoderConfig, "gpt_oss_20b", pattern=in_turn("sliding", "full"))
transformer_base = preset(QkvEncoderDecoderConfig, "transformer_base")
transformer_big = preset(QkvEncoderDecoderConfig, "transformer_big")
t5_small = preset(QkvEncoderDecoderConfig, "t5_small")
t5_base = preset(QkvEncoderDecoderConfig, "t5_base")
bart_base = preset(QkvEncoderDecoderConfig, "bart_base")
vit_base_16 = preset(QkvImageEncoderConfig, "vit_base_16")
vit_large_16 = preset(QkvImageEncoderConfig, "vit_large_16")
deit_small_16 = preset(QkvImageEncoderConfig, "deit_small_16")
dinov3_vits16 = preset(QkvImageEncoderConfig, "dinov3_vits16")
dalle = preset(QkvDecoderConfig, "dalle", pattern=dalle_pattern)
rnnsearch_50 = preset(QkvRecurrentConfig, "rnnsearch_50")
clip_vit_b32 = preset(QkvDualEncoderConfig, "clip_vit_b32")
siglip_base = preset(QkvDualEncoderConfig, "siglip_base")
detr_r50 = preset(QkvDetectionConfig, "detr_r50")
speech_transformer_s = preset(QkvSpeechEncoderDecoderConfig, "speech_transformer_s")
whisper_tiny = preset(QkvSpeechEncoderDecoderConfig, "whisper_tiny")
whisper_base = preset(QkvSpeechEncoderDecoderConfig, "whisper_base")
whisper_small = preset(QkvSpeechEncoderDecoderConfig, "whisper_small")
