"""Describe the model that a card is about: its classes here and in transformers, its form, and its addresses."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

from qkv import modeling
from qkv.modeling.conversion.config import lost_on_writing
from qkv.modeling.conversion.convert import chosen, our_pairs
from qkv.scripts.publishing.card.heads import HEADS, IMAGE_FEATURES
from qkv.scripts.publishing.export.tested_releases import TESTED, spelled
from qkv.scripts.publishing.integrity.loading import auto_class

# Fields of configs, by which their frontend is known.
NAMED_FRONTENDS = {
    **{"patch_size": "patches", "num_mel_bins": "spectrogram", "input_feat_per_channel": "spectrogram"},
    "backbone_config": "feature_map",
}
Form = Literal["self-contained", "native"]
Config = dict[str, Any]
# Fields of a config that do not describe the architecture.
ELSEWHERE = frozenset("_name_or_path architectures auto_map id2label label2id model_type transformers_version".split())


@dataclass(frozen=True)
class Place:
    """The folder of a card.

    `form` is that of the folder; `other` the Hub id or address of the same model in the other form; `repo` the Hub id
    of this one; `digest` the identity in its manifest, `tested` the releases of transformers in it; `processor` says
    whether one is in the folder.
    """

    form: Form = "self-contained"
    other: str | None = None
    repo: str | None = None
    digest: str | None = None
    tested: str = spelled(TESTED)
    processor: bool = True


@dataclass(frozen=True)
class CardModel:
    """A model as its card names it: class and type in its form, and the equivalent class of transformers."""

    name: str
    config: Config
    architecture: str
    model_type: str
    auto_class: str
    stock: str | None
    place: Place

    @classmethod
    def of(cls, name: str, config: Config, architecture: str, place: Place) -> "CardModel":
        """Describe a config and a class of qkv or transformers; ValueError for a form that does not exist."""
        native, ours = place.form == "native", config["model_type"].startswith("qkv_")
        if not ours and not native:
            raise ValueError(f"{architecture} is a stock model, which has no self-contained form; give form='native'")
        stock = counterpart(config, architecture) if ours else (config["model_type"], architecture)
        if native and stock is None:
            raise ValueError(f"{name} has no native form: stock transformers has no such architecture")
        auto = auto_class(config, architecture)
        model_type, shown = stock if native and stock else (config["model_type"], architecture)
        return cls(
            name, config, shown, model_type, auto if auto in HEADS else "AutoModel", stock[1] if stock else None, place
        )

    @property
    def native(self) -> bool:
        """Return whether the folder holds the stock form, which needs no remote code."""
        return self.place.form == "native"

    @property
    def repo(self) -> str:
        """Return its name on the Hub, or a placeholder."""
        return self.place.repo or f"user/{self.name}"

    @property
    def other(self) -> str | None:
        """Return the address of the other form."""
        other = self.place.other
        return other if other is None or "://" in other else f"https://huggingface.co/{other}"

    @property
    def encoder(self) -> Config:
        """Return the config of its encoder where it has one, its own otherwise."""
        encoder: Config = self.config.get("encoder", self.config)
        return encoder

    @property
    def frontend(self) -> str:
        """Return its kind of input: tokens, patches, both or a spectrogram; the encoder's where there is one."""
        if "vision_config" in self.config:
            return "both"
        if self.auto_class == "AutoModelForCausalLM":  # also a decoder alone of a model of speech
            return "tokens"
        return next((kind for field, kind in NAMED_FRONTENDS.items() if field in self.encoder), "tokens")

    @property
    def predicts_contacts(self) -> bool:
        """Return whether it has the head that AutoModel loads, and that no task of the Hub is for."""
        return self.architecture.endswith("ForContactPrediction")

    @property
    def task(self) -> str | None:
        """Return the Hub's name of its task."""
        if self.predicts_contacts:
            return None
        if self.auto_class == "AutoModel" and self.frontend in ("patches", "feature_map"):
            return IMAGE_FEATURES
        return HEADS[self.auto_class]

    def differences(self) -> Config:
        """Return the fields of the config that are not the defaults of its type, without labels and `auto_map`."""
        return changed(self.config, config_class(self.config["model_type"])().to_dict())


def config_class(model_type: str) -> type[PreTrainedConfig]:
    """Return the class of a config; ValueError for a type that this transformers does not know."""
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"model_type={model_type!r} is known neither to qkv nor to transformers {transformers.__version__}"
        )
    return CONFIG_MAPPING[model_type]


def changed(values: Config, defaults: Config) -> Config:
    """Return the values that are not the defaults, also of nested configs."""
    changes = {name: value for name, value in values.items() if value != defaults.get(name) and name not in ELSEWHERE}
    inner = {name: value for name, value in changes.items() if isinstance(value, dict)}
    return changes | {name: changed(value, defaults.get(name) or {}) for name, value in inner.items()}


def counterpart(config: Config, architecture: str) -> tuple[str, str] | None:
    """Return model type and class of transformers that compute the same with this config, if there are any."""
    model_class = getattr(modeling, architecture, None)
    if model_class is None:
        raise ValueError(f"there is no architecture {architecture!r} in this qkv")
    with torch.device("meta"):  # names of weights are asked for, never their numbers
        model = model_class(model_class.config_class.from_dict(config))
    try:
        official, head = chosen(our_pairs(model), model.config, lost_on_writing)
    except ValueError:
        return None
    return official.model_type, head.theirs
