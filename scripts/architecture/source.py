"""Find the model to show by its config: a preset, a recipe, a run, a folder or a Hub id, ours or an official one."""

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from transformers import AutoConfig

from qkv import modeling
from qkv.configuration import presets
from qkv.modeling.conversion.config import lost_on_reading, read_config
from qkv.modeling.conversion.convert import chosen, is_ours, official_heads
from qkv.modeling.conversion.files import CONFIG, located, named
from qkv.scripts.common.files import model_folder
from qkv.scripts.common.words import nearest
from qkv.scripts.planning.inputs import HEADS, LARGEST, LARGEST_BY_FAMILY, Inputs, check_length, head_of, make_inputs
from qkv.scripts.planning.planned_model import PlannedModel, config_fields, find, trained_class
from qkv.scripts.recipes import loading as recipes


class HeadlessModel(PlannedModel):
    """A model without a head that is trained: it reads what those with one read, without targets."""

    @property
    def head(self) -> str:
        """The head that a preset of its config is trained with."""
        return head_of(trained_class(self.config).__name__)

    def inputs(self, batch: int) -> Inputs:
        """Return what it takes of the inputs with that head; targets are what its decoder reads."""
        inputs = make_inputs(self.head, self.config, self.sizes, batch)
        taken = signature(self.model_class.forward).parameters
        if "labels" in inputs and "decoder_input_ids" in taken:
            inputs["decoder_input_ids"] = inputs["labels"]
        return {name: value for name, value in inputs.items() if name in taken}


def find_model(name: str, words: Sequence[str], length: int | None, revision: str | None = None) -> PlannedModel:
    """Find the model of that name; ValueError says what was expected instead."""
    if name in presets.names() or name in recipes.names() or name.endswith((".yaml", ".yml")):
        return find(name, words, length)
    model_class, config = saved_config(name, config_folder(name, revision), words)
    kind = PlannedModel if head_of(model_class.__name__) in HEADS else HeadlessModel
    try:
        bare = kind(name, model_class, config, {})
        largest = {**LARGEST, **LARGEST_BY_FAMILY.get(config.model_type, {})}
        sizes = bare.example.sizes(config, largest)
    except (KeyError, ValueError):
        part = model_class.__name__
        raise ValueError(f"{name} holds a {part}, which is a part of other models; name one of these") from None
    if length is not None and "tokens" in sizes:
        check_length(config, length)
        sizes = {**sizes, "tokens": length}
    return replace(bare, sizes=sizes)


def config_folder(name: str, revision: str | None) -> Path:
    """Return the folder with the config of that name, of the Hub if it is none here; nothing else is fetched."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        folder = model_folder(folder)
        if not (folder / CONFIG).is_file():
            raise ValueError(f"{name} holds no {CONFIG}; give a finished run such as runs/first, or a model folder")
        return folder
    known = [*presets.names(), *recipes.names()]
    if "/" not in name and (close := nearest(name, known)):
        raise ValueError(f"{name!r} is no preset, recipe or folder; did you mean {close!r}?")
    return located(name, revision, fetched_config)


def fetched_config(name: str, revision: str | None) -> Path:
    """Fetch the config of a Hub id into the cache, and return its folder."""
    return Path(hf_hub_download(name, CONFIG, revision=revision)).parent


def saved_config(name: str, folder: Path, words: Sequence[str]) -> tuple[Any, Any]:
    """Return our class and config of a folder; an official one as conversion reads it."""
    model_type, architecture = named(folder)
    if is_ours(folder):
        if architecture not in modeling.__all__:
            raise ValueError(f"{name} holds a {architecture}, which qkv does not have")
        return getattr(modeling, architecture), AutoConfig.from_pretrained(folder, **config_fields(words))
    if words:
        raise ValueError(f"{words[0]} is for a qkv config, and {name} has one of {architecture}; convert it first")
    pairs = official_heads(model_type, architecture)
    official = AutoConfig.from_pretrained(folder)
    pair = chosen(pairs, official, lost_on_reading)
    return pair[1].ours, read_config(*pair, official)
