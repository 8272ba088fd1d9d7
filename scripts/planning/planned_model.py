"""Find the model to plan: its class, config and inputs, from a recipe, a preset or a saved config."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.initialization import no_init_weights

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.planning.inputs import (
    HEADS,
    LARGEST,
    LARGEST_BY_FAMILY,
    Example,
    Inputs,
    Sizes,
    check_length,
    head_of,
    make_inputs,
    part_configs,
)
from qkv.scripts.planning.recipe_sizes import data_sizes
from qkv.scripts.recipes import loading as recipes
from qkv.scripts.recipes.fields.aliases import ALIASES, resolve
from qkv.scripts.recipes.keys import merged
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.run import architecture_of, config_factory


@dataclass(frozen=True)
class PlannedModel:
    """A model to be trained on examples of these sizes, with the recipe that it comes from, if any."""

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
    def example(self) -> Example:
        """The kind of example that its head reads."""
        return HEADS[self.head][0]

    @property
    def units(self) -> int:
        """The number of units of an example: its tokens, or 1."""
        return self.sizes["tokens"] if self.example.unit == "token" else 1

    def build(self, *, fused: bool) -> nn.Module:
        """Build the model in training mode, with weights as its class initialises them.

        With `fused`, dropout is as GPUs have it: inside the attention kernel, and elsewhere with a mask of a byte for
        each unit. Keys and values are not cached.
        """
        config = deepcopy(self.config)
        for part in (config, *part_configs(config)):
            if fused and hasattr(part, "attention_dropout"):
                part.attention_dropout = 0.0
            if hasattr(part, "use_cache"):
                part.use_cache = False
        model: nn.Module = self.model_class(config)
        return fuse_dropout(model).train() if fused else model.train()

    def without_weights(self) -> Any:
        """Build the model on the meta device."""
        with torch.device("meta"), no_init_weights():
            return self.build(fused=False)

    def inputs(self, batch: int) -> Inputs:
        """Return a batch without meaning."""
        return make_inputs(self.head, self.config, self.sizes, batch)


class FusedDropout(nn.Dropout):
    """Dropout as GPUs have it: one kernel, which keeps a mask of a byte for each unit."""

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.native_dropout(hidden, self.p, True)[0] if self.p else hidden  # noqa: FBT003


def fuse_dropout(model: nn.Module) -> nn.Module:
    """Replace every dropout of a model."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FusedDropout(child.p))
    return model


def find(name: str, words: Sequence[str], length: int | None) -> PlannedModel:
    """Find the model of that name with `key=value` words applied; ValueError says what was expected instead."""
    recipe: Recipe | None = None
    sizes: Sizes = {}
    if name in presets.names():
        config = getattr(presets, name)(**config_fields(words))
        model_class = trained_class(config)
    elif (Path(name) / "config.json").is_file():
        model_class, config = saved_model(name, words)
    else:
        recipe = load_recipe(name, words)
        model_class = architecture_of(recipe)
        fields, sizes = data_sizes(recipe, model_class)
        config = config_factory(recipe, model_class)(**merged(fields, recipe.model.config))
        name = recipe.name
    example, _ = HEADS[head_of(model_class.__name__)]
    sizes = example.sizes(config, {**LARGEST, **LARGEST_BY_FAMILY.get(config.model_type, {}), **sizes})
    if length is not None and "tokens" in sizes:
        check_length(config, length)
        sizes = {**sizes, "tokens": length}
    return PlannedModel(name, model_class, config, sizes, recipe)


def trained_class(config: Any) -> Any:
    """Return the class that a preset's paper trains: of those that take its config, the one whose head comes first."""
    classes = [kind for name in modeling.__all__ if head_of(name) in HEADS
               and (kind := getattr(modeling, name)).config_class is type(config)]  # fmt: skip
    return min(classes, key=lambda kind: list(HEADS).index(head_of(kind.__name__)))


def config_fields(words: Sequence[str]) -> dict[str, Any]:
    """Parse the fields of a config from `key=value` words."""
    plain = [word.removeprefix("model.") for word in words]
    named = resolve([word if word.partition("=")[0] in ALIASES else f"model.{word}" for word in plain])
    return dict(recipes.pairs([word.removeprefix("model.") for word in named], "num_hidden_layers=24"))


def saved_model(name: str, words: Sequence[str]) -> tuple[Any, Any]:
    """Return the model class and config of a folder, of which only config.json is read."""
    config = AutoConfig.from_pretrained(name, **config_fields(words))
    architecture = (config.architectures or ["nothing"])[0]
    if architecture not in modeling.__all__ or head_of(architecture) not in HEADS:
        raise ValueError(
            f"{name} holds a {architecture}, which qkv does not train; qkv convert makes a qkv model of it"
        )
    return getattr(modeling, architecture), config


def load_recipe(name: str, words: Sequence[str]) -> Recipe:
    """Load the recipe of that name; ValueError where there is nothing of that name."""
    if name not in recipes.names() and not name.endswith((".yaml", ".yml")):
        close = get_close_matches(name, [*recipes.names(), *presets.names()], n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the presets are {', '.join(presets.names())}"
        raise ValueError(f"{name!r} is no recipe, preset or folder with a config.json; {hint}")
    return recipes.load(name, words)
