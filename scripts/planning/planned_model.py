"""Find the model to plan: its class, config and inputs, from a recipe, a preset or a saved config."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig
from transformers.initialization import no_init_weights

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.common.files import table
from qkv.scripts.common.heads import HEADS, Head, head_of
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.pretrained import part_configs
from qkv.scripts.data.tokenization import MAKERS, SPECIAL
from qkv.scripts.example_data import shapes
from qkv.scripts.planning import inputs as examples
from qkv.scripts.planning.inputs import Inputs, Sizes
from qkv.scripts.recipes import loading as recipes
from qkv.scripts.recipes.fields.aliases import ALIASES, resolve
from qkv.scripts.recipes.fields.keys import merged
from qkv.scripts.recipes.schema import Fields, Recipe
from qkv.scripts.tasks import contrastive, denoising, infilling
from qkv.scripts.training.pretrained import pretrained_config
from qkv.scripts.training.run import TRAINED, architecture_of, config_factory

EXAMPLE_DATA: dict[str, dict[str, Any]] = table(__file__)


@dataclass(frozen=True)
class PlannedModel:
    """A model, the sizes of its training examples, and its recipe, if any."""

    name: str
    model_class: Any
    config: Any
    sizes: Sizes
    recipe: Recipe | None = None

    @property
    def head(self) -> Head:
        """The head of the model."""
        return head_of(self.model_class.__name__)

    def build(self) -> nn.Module:
        """Build the model in training mode, without a cache of keys and values.

        The dropout of attention is inside its kernel, as on GPUs.
        """
        config = deepcopy(self.config)
        for part in (config, *part_configs(config)):
            if hasattr(part, "attention_dropout"):
                part.attention_dropout = 0.0
            if hasattr(part, "use_cache"):
                part.use_cache = False
        model: nn.Module = self.model_class(config)
        return model.train()

    def without_weights(self) -> Any:
        """Build the model on the meta device."""
        with torch.device("meta"), no_init_weights():
            return self.build()

    def inputs(self, batch: int) -> Inputs:
        """Return a batch of zeros."""
        return examples.make_inputs(self.head, self.config, self.sizes, batch)


def find(name: str, words: Sequence[str], length: int | None) -> PlannedModel:
    """Find a model by its name, and apply `key=value` words; ValueError for an unknown name or field."""
    recipe: Recipe | None = None
    sizes: Sizes = {}
    if name in presets.names():
        config = getattr(presets, name)(**config_fields(words))
        model_class = trained_class(config)
    elif (Path(name) / "config.json").is_file():
        model_class, config = saved_model(name, words)
    else:
        if name not in recipes.names() and not name.endswith((".yaml", ".yml")):
            hint = did_you_mean(name, [*recipes.names(), *presets.names()], "recipes and presets")
            raise ValueError(f"{name!r} is no recipe, preset or folder with a config.json; {hint}")
        recipe = recipes.load(name, words)
        name, model_class = recipe.name, architecture_of(recipe)
        fields, sizes = data_sizes(recipe, model_class)
        config = recipe_config(recipe, model_class, fields)
    largest = {**examples.LARGEST, **examples.LARGEST_BY_FAMILY.get(config.model_type, {}), **sizes}
    sizes = examples.example_sizes(head_of(model_class.__name__), config, largest)
    if length is not None and "tokens" in sizes:
        examples.check_length(config, length)
        sizes = {**sizes, "tokens": length}
    return PlannedModel(name, model_class, config, sizes, recipe)


def recipe_config(recipe: Recipe, model_class: Any, fields: Fields) -> Any:
    """Return the config of a recipe's model, or of the pretrained one that it names."""
    if recipe.model.init is not None:
        return pretrained_config(recipe, model_class, fields)
    return config_factory(recipe, model_class)(**merged(fields, recipe.model.config))


def trained_class(config: Any) -> Any:
    """Return the class that a preset's paper trains: the first in the table of heads that takes its config."""
    classes = [getattr(modeling, name) for name in TRAINED if getattr(modeling, name).config_class is type(config)]
    return min(classes, key=lambda kind: HEADS.index(head_of(kind.__name__)))


def config_fields(words: Sequence[str]) -> dict[str, Any]:
    """Parse the fields of a config from `key=value` words."""
    plain = [word.removeprefix("model.") for word in words]
    named = resolve([word if word.partition("=")[0] in ALIASES else f"model.{word}" for word in plain])
    return dict(recipes.pairs([word.removeprefix("model.") for word in named], "num_hidden_layers=24"))


def saved_model(name: str, words: Sequence[str]) -> tuple[Any, Any]:
    """Return the model class and config of a folder, from its config.json alone."""
    config = AutoConfig.from_pretrained(name, **config_fields(words))
    architecture = (config.architectures or ["nothing"])[0]
    if architecture not in TRAINED:
        raise ValueError(
            f"{name} holds a {architecture}, which qkv does not train; qkv convert makes a qkv model of it"
        )
    return getattr(modeling, architecture), config


def data_sizes(recipe: Recipe, model_class: Any) -> tuple[Fields, dict[str, int]]:
    """Return config fields that follow from the data, nested for parts, and sizes of examples.

    Data that are not generated have as many tokens and pixels as the recipe allows, in images of 4:3.
    """
    source, edge, symbols = recipe.data.source, recipe.data.shortest_edge, recipe.text.symbols
    data = EXAMPLE_DATA.get(source, {})
    # Control words are added to a tokenizer that is trained here.
    added = len(infilling.SENTINELS) if recipe.text.fim_rate else 0
    added += denoising.SENTINELS if recipe.text.corruption == "spans" else 0
    fields: Fields = {"vocab_size": recipe.text.vocab_size + added} if recipe.text.tokenizer in MAKERS else {}
    if recipe.text.tokenizer == data.get("tokenizer"):
        fields["vocab_size"] = len(SPECIAL) + data.get("tokens", 0) + symbols * data.get("per_symbol", 0)
    fields |= data.get("fields", {})
    sizes = {"tokens": recipe.text.length, "height": edge, "width": edge * 4 // 3, **data.get("sizes", {})}
    if source == "shapes-detect":  # in square images
        fields["num_labels"], sizes["width"] = symbols, edge
    elif source == "shapes-captions":  # whose tokenizer is quickly made
        texts = [shapes.caption(pair) for part in shapes.pairs(symbols) for pair in part]
        tokenizer = contrastive.clip_processor(texts, shapes.CAPTION_SIDE, shapes.VOCAB_SIZE).tokenizer
        fields["text_config"] = contrastive.text_config(tokenizer)
        fields["vision_config"] = {"image_size": shapes.CAPTION_SIDE}
        sizes["tokens"] = max(map(len, tokenizer(texts)["input_ids"]))
    known = {"num_labels", *model_class.config_class.known_fields()}
    return {name: value for name, value in fields.items() if name in known}, sizes
