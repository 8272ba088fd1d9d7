"""Build the folder of a model that loads without qkv: weights, config, flattened code, processor, card, license."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import PreTrainedModel

from qkv.configuration.configuration_base import QkvConfig
from qkv.modeling.conversion.files import CONFIG, read_json
from qkv.scripts.common.files import staged, write_atomically
from qkv.scripts.publishing.export.flatten import FlatCode, flatten
from qkv.scripts.publishing.integrity.manifest import write_manifest

README, LICENSE = "README.md", "LICENSE"
PROCESSORS = ("tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
# Fields by which transformers notes how a file was read or written: the same model has others in the next copy.
OF_LOADING = ("is_local", "local_files_only", "name_or_path", "transformers_version")


def build_folder(
    model: PreTrainedModel,
    target: Path,
    *,
    processors: Sequence[Any] = (),
    card: Callable[[str], str] | None = None,
    files: Mapping[str, bytes] = MappingProxyType({}),
    max_shard_size: str = "5GB",
) -> Path:
    """Write the folder of a model, complete or not at all; a qkv model with the code that loads it.

    `processors` are the tokenizer or image processor; `card` makes the README from the identity in the manifest, and
    `files` go along with it, by their paths. FileExistsError when the target is not empty, ValueError for a weight that
    is NaN or infinite, as after a training that has diverged.
    """
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not weight.detach().float().isfinite().all():
            raise ValueError(f"weight {name} is NaN or infinite; train the model again with a lower learning_rate")
    with staged(target) as folder:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        for processor in processors:
            processor.save_pretrained(folder)
        complete_folder(folder, model, card)
    return target


def complete_folder(folder: Path, model: PreTrainedModel, card: Callable[[str], str] | None) -> None:
    """Add to a saved model the code that loads it, the card and the manifest."""
    code = flatten(model.config) if isinstance(model.config, QkvConfig) else FlatCode({}, {})
    write_code(code, folder)
    changes = {CONFIG: {"auto_map": code.auto_map} if code.auto_map else {}, "generation_config.json": {}}
    for name, added in (changes | dict.fromkeys(PROCESSORS, {})).items():
        if (folder / name).is_file():
            write_config(folder / name, added)
    write_manifest(folder, model, card)


def write_config(path: Path, added: Mapping[str, Any]) -> None:
    """Add fields to a config file, and remove those that describe its loading, which other copies lack."""
    saved = read_json(path)
    # Without a release transformers takes the tokenizer of a Mistral for one that is to be mended.
    dropped = OF_LOADING[:-1] if saved.get("model_type") == "mistral" else OF_LOADING
    values = {**{name: value for name, value in saved.items() if name not in dropped}, **added}
    for part in (each for each in values.values() if isinstance(each, dict) and "model_type" in each):
        if part.get("dtype") == values.get("dtype"):  # which loading copies to the parts
            part.pop("dtype", None)
    if values != read_json(path):
        write_atomically(path, json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_code(code: FlatCode, folder: Path) -> None:
    """Write code into a folder, and its license where there is none."""
    for name, text in code.files.items():
        write_atomically(folder / name, text)
    if not (folder / LICENSE).exists():
        checkout, wheel = Path(__file__).parents[3] / LICENSE, distribution("qkv")
        kept = checkout.read_text("utf-8") if checkout.is_file() else wheel.read_text(f"licenses/{LICENSE}")
        if kept is None:
            raise FileNotFoundError("the installed qkv has lost its LICENSE, without which its code may not be copied")
        write_atomically(folder / LICENSE, kept)
