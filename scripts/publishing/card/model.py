"""Describe the model that a card is about: its classes here and in transformers, its form, and its addresses."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

from qkv import modeling
from qkv.modeling.conversion.convert import chosen, our_conversions
from qkv.scripts.common.heads import HUB_TASKS
from qkv.scripts.publishing.export.tested_releases import TESTED, spelled
from qkv.scripts.publishing.integrity.loading import auto_class

Config = dict[str, Any]
OF_CHAINS = "ForContactPrediction", "FoldingModel"  # ends of architectures without a task of the Hub
# Fields of configs, by which the kind of input is known.
FRONTENDS = {
    "patch_size": "patches", "num_mel_bins": "spectrogram", "input_feat_per_channel": "spectrogram",
    "backbone_config": "feature_map",
}  # fmt: skip
# Fields of a config that do not describe the architecture.
ELSEWHERE = frozenset("_name_or_path architectures auto_map id2label label2id model_type transformers_version".split())


@dataclass(frozen=True)
class CardModel:
    """A model as its card names it: class and type in its form, its task, and the equivalent class of transformers.

    `frontend` is its kind of input: tokens, patches, a feature map, a spectrogram or both images and texts. `form` is
    that of the folder; `other` the Hub id or address of the same model in the other form; `repo` the Hub id of this
    one; `digest` the identity in its manifest, `tested` the releases of transformers in it; `processor` says whether
    one is in the folder.
    """

    name: str
    config: Config
    architecture: str
    model_type: str
    auto_class: str
    stock: str | None
    frontend: str
    task: str | None
    form: Literal["self-contained", "native"] = "self-contained"
    other: str | None = None
    repo: str | None = None
    digest: str | None = None
    tested: str = spelled(TESTED)
    processor: bool = True

    @property
    def native(self) -> bool:
        """Return whether the folder holds the stock form, which needs no remote code."""
        return self.form == "native"

    @property
    def address(self) -> str:
        """Return its name on the Hub, or a placeholder."""
        return self.repo or f"user/{self.name}"


def describe(name: str, config: Config, architecture: str, **place: Any) -> CardModel:
    """Describe a config and a class of qkv or transformers; ValueError for a form that does not exist."""
    is_native, is_ours = place.get("form") == "native", config["model_type"].startswith("qkv_")
    if not is_ours and not is_native:
        raise ValueError(f"{architecture} is a stock model, which has no self-contained form; give form='native'")
    stock = counterpart(config, architecture) if is_ours else (config["model_type"], architecture)
    if is_native and stock is None:
        raise ValueError(f"{name} has no native form: stock transformers has no such architecture")
    auto = auto_class(config, architecture)
    auto = auto if auto in HUB_TASKS else "AutoModel"
    model_type, shown = stock if is_native and stock else (config["model_type"], architecture)
    facts = stock and stock[1], frontend(config, auto), task(architecture, auto, frontend(config, auto))
    return CardModel(name, config, shown, model_type, auto, *facts, **place)


def frontend(config: Config, auto_class: str) -> str:
    """Return the kind of input of a model, or of its encoder."""
    if "vision_config" in config:
        return "both"
    if auto_class == "AutoModelForCausalLM":  # also a decoder alone of a model of speech
        return "tokens"
    return next((kind for name, kind in FRONTENDS.items() if name in config.get("encoder", config)), "tokens")


def task(architecture: str, auto_class: str, frontend: str) -> str | None:
    """Return the Hub's name of the task of a head; it has none for contacts and folds, which AutoModel loads."""
    if architecture.endswith(OF_CHAINS):
        return None
    is_of_images = auto_class == "AutoModel" and frontend in ("patches", "feature_map")
    return "image-feature-extraction" if is_of_images else HUB_TASKS[auto_class]


def differences(config: Config) -> Config:
    """Return the fields of a config that are not the defaults of its type, without labels and `auto_map`."""
    kind = config["model_type"]
    if kind not in CONFIG_MAPPING:
        raise ValueError(f"model_type={kind!r} is known neither to qkv nor to transformers {transformers.__version__}")
    config_class: type[PreTrainedConfig] = CONFIG_MAPPING[kind]
    return changed(config, defaults_of(config_class))


def defaults_of(config_class: type[PreTrainedConfig]) -> Config:
    """Return the defaults of a config, of fields too that are saved only where they are read."""
    return {field.name: field.default for field in fields(config_class)} | config_class().to_dict()


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
    with torch.device("meta"):  # only names of weights are needed
        model = model_class(model_class.config_class.from_dict(config))
    try:
        conversion = chosen(our_conversions(model), model.config)
    except ValueError:
        return None
    return conversion.model_type, conversion.theirs
