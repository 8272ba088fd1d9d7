"""What is planned? A model class, its config and the inputs of a step, from a recipe, a preset or a saved config."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.initialization import no_init_weights

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.planning.inputs import (
    HEADS,
    LARGEST,
    LARGEST_BY_FAMILY,
    Inputs,
    Reading,
    Sizes,
    halves,
    head_of,
    inputs,
    refuse_too_long,
)
from qkv.scripts.planning.recipe_sizes import known
from qkv.scripts.recipes import schema as recipes
from qkv.scripts.recipes.schema import Recipe, meant, read, refuse_unknown
from qkv.scripts.training.run import config_factory, merged

# The heads that papers train; of those that take a config a preset has the first that reads what it does.
TRAINED = (
    "QkvDecoderForCausalLM",
    "QkvEncoderForMaskedLM",
    "QkvEncoderForImageClassification",
    "QkvEncoderForCTC",
    "QkvEncoderDecoderForConditionalGeneration",
    "QkvEncoderDecoderForSpeechSeq2Seq",
    "QkvRecurrentForConditionalGeneration",
    "QkvDualEncoderModel",
    "QkvDetectionForObjectDetection",
)


@dataclass(frozen=True)
class Subject:
    """A model to be trained, on examples of these sizes; with the recipe it comes from, if any."""

    name: str
    model_class: Any
    config: Any
    sizes: Sizes
    recipe: Recipe | None = None

    @property
    def head(self) -> str:
        """The end of the class's name, or all of it."""
        return head_of(self.model_class.__name__)

    @property
    def reading(self) -> Reading:
        """What its examples are."""
        return HEADS[self.head][0]

    @property
    def positions(self) -> int:
        """How many units of work an example is: its tokens, or 1."""
        return self.sizes["tokens"] if self.reading.unit == "token" else 1

    def build(self, *, fused: bool) -> nn.Module:
        """The model in training, its weights as its class leaves them; `fused` as kernels of GPUs have its dropout.

        Those draw dropout of attention inside the kernel, and elsewhere keep a byte for each unit. Keys and values of a
        text that is read once are not kept.
        """
        config = deepcopy(self.config)
        for part in (config, *halves(config)):
            if fused and hasattr(part, "attention_dropout"):
                part.attention_dropout = 0.0
            if hasattr(part, "use_cache"):
                part.use_cache = False
        model: nn.Module = self.model_class(config)
        return fuse_dropout(model).train() if fused else model.train()

    def outline(self) -> Any:
        """The model without weights."""
        with torch.device("meta"), no_init_weights():
            return self.build(fused=False)

    def inputs(self, batch: int) -> Inputs:
        """A batch that holds no numbers worth reading."""
        return inputs(self.head, self.config, self.sizes, batch)


class FusedDropout(nn.Dropout):
    """Dropout as GPUs have it: one kernel, which keeps a mask of a byte for each unit."""

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.native_dropout(hidden, self.p, True)[0] if self.p else hidden  # noqa: FBT003


def fuse_dropout(model: nn.Module) -> nn.Module:
    """The model with every dropout replaced."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FusedDropout(child.p))
    return model


def find(name: str, words: Sequence[str], length: int | None) -> Subject:
    """The subject of that name with `key=value` words applied; ValueError says what was expected instead."""
    recipe: Recipe | None = None
    sizes: Sizes = {}
    if name in presets.names():
        config = getattr(presets, name)(**fields(words))
        model_class = trained(config)
    elif (Path(name) / "config.json").is_file():
        model_class, config = saved(name, words)
    else:
        recipe = recipe_of(name, words)
        model_class, config, sizes = of_recipe(recipe)
    reading, _ = HEADS[head_of(model_class.__name__)]
    found = reading.sizes(config, {**LARGEST, **LARGEST_BY_FAMILY.get(config.model_type, {}), **sizes})
    if length is not None and "tokens" in found:
        refuse_too_long(config, length)
        found = {**found, "tokens": length}
    return Subject(name if recipe is None else recipe.name, model_class, config, found, recipe)


def trained(config: PreTrainedConfig) -> Any:
    """The model class that a preset's paper trains."""
    classes = [getattr(modeling, name) for name in TRAINED]
    frontend = getattr(config, "frontend", None)
    return next(found for found in classes if found.config_class is type(config) and found.reads in (None, frontend))


def fields(words: Sequence[str]) -> dict[str, Any]:
    """Fields of a config from `key=value` words."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not key=value; write for example num_hidden_layers=24")
        found[key.removeprefix("model.")] = read(value, word)
    return found


def saved(name: str, words: Sequence[str]) -> tuple[Any, Any]:
    """The model class and config of a folder, of which only config.json is read."""
    config = AutoConfig.from_pretrained(name, **fields(words))
    architecture = (config.architectures or ["nothing"])[0]
    if architecture not in modeling.__all__ or head_of(architecture) not in HEADS:
        raise ValueError(
            f"{name} holds a {architecture}, which qkv does not train; qkv convert makes a qkv model of it"
        )
    return getattr(modeling, architecture), config


def recipe_of(name: str, words: Sequence[str]) -> Recipe:
    """The recipe of that name; ValueError where there is neither one nor anything else."""
    try:
        return recipes.load(name, words)
    except ValueError as error:
        if "there is no recipe" not in str(error):
            raise
        close = get_close_matches(name, [*recipes.names(), *presets.names()], n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the presets are {', '.join(presets.names())}"
        raise ValueError(f"{name!r} is no recipe, preset or folder with a config.json; {hint}") from None


def of_recipe(recipe: Recipe) -> tuple[Any, Any, Sizes]:
    """The model class, config and sizes of a recipe, as far as they are known without its data."""
    architectures = [name for name in modeling.__all__ if head_of(name) in HEADS]
    if recipe.architecture not in architectures:
        hint = meant(recipe.architecture, architectures, "architectures")
        raise ValueError(f"there is no architecture {recipe.architecture!r}; {hint}")
    model_class: Any = getattr(modeling, recipe.architecture)
    for key in recipe.model:
        refuse_unknown(f"model.{key}", [f"model.{name}" for name in sorted(model_class.config_class.known_fields())])
    data = known(recipe, model_class)
    return model_class, config_factory(recipe, model_class)(**merged(data.fields, recipe.model)), data.sizes
