"""Configs that earlier versions saved, in the fields and words of today.

One class used to configure encoders of texts, images and sounds, told apart by its field `frontend`; each has a
class of its own now. Published models keep their `config.json`, so the package goes on reading it.
"""

import json
import re
from dataclasses import fields
from typing import Any

from .configuration_audio_encoder import QkvAudioEncoderConfig
from .configuration_base import RETIRED, QkvConfig, owner_of
from .configuration_decoder import QkvDecoderConfig
from .configuration_detection import QkvDetectionConfig, QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from .configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import QkvEncoderDecoderConfig
from .configuration_image_encoder import QkvImageEncoderConfig
from .configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig
from .fields import check_choice

Saved = dict[str, Any]  # a config as JSON holds it
# Today's class by the earlier model type, and by the input of encoders, which had one type.
CLASSES: dict[str, type[QkvConfig]] = {
    "qkv_decoder": QkvDecoderConfig,
    "qkv_text_encoder": QkvTextEncoderConfig,
    "qkv_image_encoder": QkvDetectionEncoderConfig,
    "qkv_slot_decoder": QkvDetectionDecoderConfig,
    "qkv_encoder_decoder": QkvEncoderDecoderConfig,
    "qkv_dual_encoder": QkvDualEncoderConfig,
    "qkv_detection": QkvDetectionConfig,
}
ENCODERS: dict[str, type[QkvConfig]] = {
    "tokens": QkvEncoderConfig,
    "patches": QkvImageEncoderConfig,
    "spectrogram": QkvAudioEncoderConfig,
}
WORDS: dict[str, dict[str, str]] = {
    "frame_padding": {"silenced": "zeroed", "heard": "unmasked"},
    "position": {"slots": "object_queries"},
    "transcription": {"whole": "short_form", "windows": "long_form"},
}
# By these fields transformers loads kernels, which are code, or other weights; only a person may choose them.
LOADED = re.compile(
    r'"(_?(?:attn|experts)_imp\w+|transformers_weights)": (?!"(?:eager|sdpa|flex_attention)")(".*?"|{.*?})'
)
# Earlier versions saved every field of a stack, these among them, which no later version has.
EARLIER = frozenset({*RETIRED, "skip_first_norm"})


def update_saved_config(saved: Saved) -> Saved:
    """Return a saved config in today's fields and words; one of this version is returned as it is.

    What was saved for other inputs than the model's is left out. A value that the model's class no longer allows stays,
    so that the class refuses it: nothing is computed in another way than before. ValueError for a model type or an
    input that there never was, and for a field that only a person may choose.
    """
    if named := LOADED.search(json.dumps(saved, default=str, skipkeys=True)):
        raise ValueError(f"{named[1]}={named[2]} of a saved config may load code or other weights; remove it there")
    parts = {name: update_saved_config(part) for name, part in saved.items() if is_earlier(part)}
    if not parts and not is_earlier(saved):
        return saved
    values = saved | parts if parts else update_stack(saved)
    config_class = class_today(values)
    for name in WORDS.keys() & values.keys():
        values[name] = WORDS[name].get(values[name], values[name])
    # Models are named after their configs.
    before = "".join(map(str.capitalize, values["model_type"].split("_")))
    after = config_class.__name__.removesuffix("Config")
    architectures = [name.replace(before, after, 1) for name in values.get("architectures") or ()]
    used = {name: value for name, value in values.items() if not is_unused(config_class, name, value)}
    return used | {"model_type": config_class.model_type, "architectures": architectures}


def is_earlier(saved: object) -> bool:
    """Return whether an earlier version saved this config of a stack."""
    return isinstance(saved, dict) and saved.keys() >= EARLIER and str(saved.get("model_type")).startswith("qkv_")


def class_today(values: Saved) -> type[QkvConfig]:
    """Return the class that configures such a model today."""
    kind = values["model_type"]
    if kind == "qkv_encoder":
        check_choice(ENCODERS, "frontend", values.get("frontend"))
        return ENCODERS[values["frontend"]]
    if kind == "qkv_encoder_decoder" and values["encoder"]["model_type"] == QkvAudioEncoderConfig.model_type:
        return QkvSpeechEncoderDecoderConfig
    check_choice(CLASSES, "model_type", kind)
    return CLASSES[kind]


def update_stack(saved: Saved) -> Saved:
    """Write biases, patterns and the norm of embeddings into one field each, which had several."""
    values = dict(saved)
    retired = {name: values.pop(name) for name in EARLIER}
    inner, key, output = values["attention_bias"], retired["attention_key_bias"], retired["attention_output_bias"]
    biased = {"q_proj": inner, "k_proj": key, "v_proj": inner, "o_proj": output}
    names = [name for name, bias in biased.items() if bias]
    values["attention_bias"] = names if 0 < len(names) < len(biased) else bool(names)
    if retired["attention_patterns"]:
        values["pattern"] = retired["attention_patterns"]
    if retired["skip_first_norm"]:
        values["embedding_norm"] = "instead"
    return values


def is_unused(config_class: type[QkvConfig], name: str, value: object) -> bool:
    """Return whether a saved value says nothing to a class: it has no such field, or always this value."""
    if name == "auto_map":
        return True
    if name in {field.name for field in fields(config_class)}:
        return False
    if hasattr(config_class, name):
        always = getattr(config_class, name)
        return isinstance(always, property) or always == value
    return owner_of(name) is not None
