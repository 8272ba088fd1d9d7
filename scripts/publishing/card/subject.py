"""What is a card about? A model in one of its two forms, where it lies, and what it is called by whom."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

from qkv import modeling
from qkv.modeling.conversion.config import lost_on_writing
from qkv.modeling.conversion.convert import chosen, our_pairs
from qkv.scripts.publishing.card.heads import (
    HEADS,
    IMAGE_FEATURES,
    PAIR_FEATURES,
    SOUND_FEATURES,
    SPOKEN_FEATURES,
    Head,
)

# Of which frontend a field tells that only stock models have alone.
NAMED_FRONTENDS = {
    **{"patch_size": "patches", "num_mel_bins": "spectrogram", "input_feat_per_channel": "spectrogram"},
    "backbone_config": "feature_map",
}
Form = Literal["self-contained", "native"]
Config = dict[str, Any]
# What a config says beside the shape of the model.
ELSEWHERE = frozenset("_name_or_path architectures auto_map id2label label2id model_type transformers_version".split())

# What a model without a head is for, by what it reads and whether it writes as well.
FEATURES = {
    ("tokens", True): PAIR_FEATURES,
    **dict.fromkeys((("patches", False), ("patches", True), ("feature_map", True)), IMAGE_FEATURES),
    ("spectrogram", False): SOUND_FEATURES,
    ("spectrogram", True): SPOKEN_FEATURES,
}


class Place(TypedDict, total=False):
    """Where a card will stand, all of it optional.

    `form` of the folder, "self-contained" by default; `other`, the Hub id or address of the same model in the other
    form; `repo`, the Hub id of this one; `digest`, the identity in its manifest; whether a `processor` lies in the
    folder, as by default.
    """

    form: Form
    other: str | None
    repo: str | None
    digest: str | None
    processor: bool


@dataclass(frozen=True)
class Subject:
    """A model as its card knows it: class and type in its form, and the class of transformers that is the same."""

    name: str
    config: Config
    architecture: str
    model_type: str
    auto_class: str
    stock: str | None
    place: Place

    @classmethod
    def of(cls, name: str, config: Config, architecture: str, place: Place) -> "Subject":
        """The subject of a config and a class, ours or official; ValueError for a form that there is not."""
        native, ours = place.get("form") == "native", config["model_type"].startswith("qkv_")
        if not ours and not native:
            raise ValueError(f"{architecture} is a stock model, which has no self-contained form; give form='native'")
        stock = counterpart(config, architecture) if ours else (config["model_type"], architecture)
        if native and stock is None:
            raise ValueError(f"{name} has no native form: stock transformers has no such architecture")
        found = auto_class(config, architecture) if ours else official_auto_class(config, architecture)
        model_type, shown = stock if native and stock else (config["model_type"], architecture)
        return cls(name, config, shown, model_type, found, stock[1] if stock else None, place)

    @property
    def native(self) -> bool:
        """Whether the folder holds the stock form, which needs no code from it."""
        return self.place.get("form") == "native"

    @property
    def repo(self) -> str:
        """Its name on the Hub, or what stands for it until it has one."""
        return self.place.get("repo") or f"user/{self.name}"

    @property
    def other(self) -> str | None:
        """The address of the other form."""
        other = self.place.get("other")
        return other if other is None or "://" in other else f"https://huggingface.co/{other}"

    @property
    def frontend(self) -> str:
        """What its inputs are: tokens, patches of images, both, or a spectrogram; the encoder's where there is one."""
        if "vision_config" in self.config:
            return "both"
        config = self.config.get("encoder", self.config)
        named = next((kind for field, kind in NAMED_FRONTENDS.items() if field in config), "tokens")
        return str(config.get("frontend", named))

    @property
    def head(self) -> Head:
        """What its head is for."""
        if self.auto_class == "AutoModel":
            return FEATURES.get((self.frontend, bool(self.config.get("is_encoder_decoder"))), HEADS["AutoModel"])
        return HEADS[self.auto_class]

    def differences(self) -> Config:
        """The fields of the config that are not the defaults of its type; neither labels nor how to load it."""
        return changed(self.config, config_class(self.config["model_type"])().to_dict())


def config_class(model_type: str) -> type[PreTrainedConfig]:
    """The class of a config; ValueError for a type that this transformers does not know."""
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"model_type={model_type!r} is known neither to qkv nor to transformers {transformers.__version__}"
        )
    return CONFIG_MAPPING[model_type]


def changed(values: Config, defaults: Config) -> Config:
    """The values that are not the defaults, and of nested ones their own."""
    found = {name: value for name, value in values.items() if value != defaults.get(name) and name not in ELSEWHERE}
    inner = {name: value for name, value in found.items() if isinstance(value, dict)}
    return found | {name: changed(value, defaults.get(name) or {}) for name, value in inner.items()}


def auto_class(config: Config, architecture: str) -> str:
    """The Auto class of the task of a class of ours; AutoModel, which loads its base, where it has none of its own."""
    references = config.get("auto_map", {}).items()
    named = [name for name, target in references if target.endswith(f".{architecture}") and name != "AutoModel"]
    return next(iter(named), "AutoModel")


def official_auto_class(config: Config, architecture: str) -> str:
    """The Auto class that loads a class of transformers."""
    for name in HEADS:
        listed = getattr(transformers, name)._model_mapping._model_mapping.get(config.get("model_type"), ())
        if architecture in ((listed,) if isinstance(listed, str) else listed):
            return name
    return "AutoModel"


def counterpart(config: Config, architecture: str) -> tuple[str, str] | None:
    """Model type and class of transformers that compute the same as ours with this config, if there are any."""
    model_class = getattr(modeling, architecture, None)
    if model_class is None:
        raise ValueError(f"there is no architecture {architecture!r} in this qkv")
    with torch.device("meta"):  # names of weights are asked for, never their numbers
        model = model_class(model_class.config_class.from_dict(config))
    try:
        official, head = chosen(our_pairs(model), model, lost_on_writing)
    except ValueError:
        return None
    return official.model_type, head.theirs
