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

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.training import recipe as recipes
from qkv.scripts.training.recipe import Recipe, meant, read, refuse_unknown
from qkv.scripts.training.run import HEADLESS, starting_point

# The head that a preset's paper trains.
HEADS = {
    "qkv_decoder": "QkvDecoderForCausalLM",
    "qkv_encoder_decoder": "QkvEncoderDecoderForConditionalGeneration",
    "tokens": "QkvEncoderForMaskedLM",
    "patches": "QkvEncoderForImageClassification",
}
# What a head takes beside its inputs, one for each row (B) or for each token (T).
TARGETS = {
    "ForCausalLM": {"labels": "T"},
    "ForMaskedLM": {"labels": "T"},
    "ForReplacedTokenDetection": {"labels": "T"},
    "ForPreTraining": {"labels": "T", "next_sentence_label": "B"},
    "ForTokenClassification": {"labels": "T"},
    "ForConditionalGeneration": {"labels": "T"},
    "ForSequenceClassification": {"labels": "B"},
    "ForImageClassification": {"labels": "B"},
    "ForMultipleChoice": {"labels": "B"},
    "ForQuestionAnswering": {"start_positions": "B", "end_positions": "B"},
    "ForMaskedImageModeling": {"bool_masked_pos": "N"},
}
CHOICES = 4
# Longer texts than this are planned only where they are asked for.
LENGTH = 1024


@dataclass(frozen=True)
class Subject:
    """A model to be trained, on rows of `length` tokens or on images; with the recipe it comes from, if any."""

    name: str
    model_class: Any
    config: Any
    length: int
    recipe: Recipe | None = None

    @property
    def is_image(self) -> bool:
        """Whether it reads images."""
        return getattr(self.config, "frontend", "tokens") == "patches"

    @property
    def unit(self) -> str:
        """What its work is counted in."""
        return "image" if self.is_image else "token"

    @property
    def positions(self) -> int:
        """Tokens that an example counts for, or 1 for an image."""
        return 1 if self.is_image else self.length

    def build(self, *, fused: bool) -> nn.Module:
        """The model in training, its weights as its class leaves them; `fused` as kernels of GPUs have its dropout.

        Those draw dropout of attention inside the kernel, and elsewhere keep a byte for each unit. Keys and values of a
        text that is read once are not kept.
        """
        config = deepcopy(self.config)
        part: Any
        for part in (config, getattr(config, "encoder", None), getattr(config, "decoder", None)):
            if fused and hasattr(part, "attention_dropout"):
                part.attention_dropout = 0.0
            if hasattr(part, "use_cache"):
                part.use_cache = False
        model: nn.Module = self.model_class(config)
        return fuse_dropout(model).train() if fused else model.train()

    def inputs(self, batch: int) -> dict[str, Tensor]:
        """A batch that holds no numbers worth reading."""
        config = self.config
        shapes: dict[str, tuple[int, ...]] = {"B": (batch,), "T": (batch, self.length)}
        if self.is_image:
            height, width = sides(config.image_size)
            shapes["N"] = (batch, (height // config.patch_size) * (width // config.patch_size))
            found = {"pixel_values": torch.zeros(batch, config.num_channels, height, width)}
        else:
            rows = (batch, CHOICES) if self.head == "ForMultipleChoice" else (batch,)
            found = {"input_ids": torch.zeros(*rows, self.length, dtype=torch.long)}
        kinds = {"N": torch.bool}
        targets = TARGETS[self.head].items()
        return found | {name: torch.zeros(shapes[kind], dtype=kinds.get(kind, torch.long)) for name, kind in targets}

    @property
    def head(self) -> str:
        """The end of the class's name, or all of it."""
        name: str = self.model_class.__name__
        return name[max(name.find("For"), 0) :]


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


def sides(size: Any) -> tuple[int, int]:
    """Height and width of an image."""
    height, width = size if isinstance(size, Sequence) else (size, size)
    return height, width


def find(name: str, words: Sequence[str], length: int | None) -> Subject:
    """The subject of that name with `key=value` words applied; ValueError says what was expected instead."""
    if name in presets.names():
        config = getattr(presets, name)(**fields(words))
        if config.model_type not in (*HEADS, "qkv_encoder") or kind(config) not in HEADS:
            raise ValueError(f"preset {name!r} is not planned; plan one that reads or writes text, or a ViT")
        found = Subject(name, modeling.__dict__[HEADS[kind(config)]], config, LENGTH)
    elif (Path(name) / "config.json").is_file():
        found = saved(name, words)
    else:
        found = of_recipe(name, words)
    if found.head not in TARGETS:
        raise ValueError(f"{found.model_class.__name__} is not planned; plan one of {', '.join(sorted(TARGETS))}")
    limit = getattr(found.config, "max_position_embeddings", None) or LENGTH
    if length is not None and length > limit and not found.is_image:
        raise ValueError(f"--length={length} is more than max_position_embeddings={limit}; change one of them")
    return Subject(found.name, found.model_class, found.config, length or min(found.length, limit), found.recipe)


def kind(config: PreTrainedConfig) -> str:
    """By what the head of a config is chosen."""
    frontend = str(getattr(config, "frontend", "tokens"))
    return config.model_type if config.model_type in HEADS and frontend == "tokens" else frontend


def fields(words: Sequence[str]) -> dict[str, Any]:
    """Fields of a config from `key=value` words."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not key=value; write for example num_hidden_layers=24")
        found[key.removeprefix("model.")] = read(value, word)
    return found


def saved(name: str, words: Sequence[str]) -> Subject:
    """The model of a folder, of which only config.json is read."""
    config = AutoConfig.from_pretrained(name, **fields(words))
    architecture = (config.architectures or ["nothing"])[0]
    if architecture not in modeling.__all__ or "For" not in architecture:
        raise ValueError(
            f"{name} holds a {architecture}, which qkv does not train; qkv convert makes a qkv model of it"
        )
    return Subject(name, getattr(modeling, architecture), config, LENGTH)


def of_recipe(name: str, words: Sequence[str]) -> Subject:
    """The model of a recipe, with labels as its `model` says and all words its tokenizer may have: no data is read."""
    try:
        recipe = recipes.load(name, words)
    except ValueError as error:
        if "there is no recipe" not in str(error):
            raise
        known = [*recipes.names(), *presets.names()]
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the presets are {', '.join(presets.names())}"
        raise ValueError(f"{name!r} is no recipe, preset or folder with a config.json; {hint}") from None
    architectures = [known for known in modeling.__all__ if "For" in known or known in HEADLESS]
    if recipe.architecture not in architectures:
        hint = meant(recipe.architecture, architectures, "architectures")
        raise ValueError(f"there is no architecture {recipe.architecture!r}; {hint}")
    model_class: Any = getattr(modeling, recipe.architecture)
    for key in recipe.model:
        refuse_unknown(f"model.{key}", [f"model.{known}" for known in sorted(model_class.config_class.known_fields())])
    own = recipe.preset is None and recipe.model.get("frontend") != "patches"
    words_known = {"vocab_size": recipe.text.vocab_size} if own else {}
    config = starting_point(recipe, model_class)(**{**words_known, **recipe.model})
    return Subject(recipe.name, model_class, config, recipe.text.length, recipe)
