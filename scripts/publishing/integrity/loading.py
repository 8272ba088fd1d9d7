"""Find the class of a saved model and its Auto class, and load it quietly, without the check of QKV_VERIFY."""

import re
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import transformers

import qkv
from qkv.modeling.conversion.files import named, quiet
from qkv.scripts.common.heads import HUB_TASKS
from qkv.scripts.common.inspector import load_reported

# Whether a load is part of writing or verifying a manifest, which QKV_VERIFY does not compare with one.
UNCHECKED: ContextVar[bool] = ContextVar("UNCHECKED", default=False)


def load_quietly(loader: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Load the model of a folder in this process, with the report on it."""
    token = UNCHECKED.set(True)
    try:
        with quiet():
            return load_reported(loader, str(folder), {})
    finally:
        UNCHECKED.reset(token)


def installed_class(folder: Path) -> Any:
    """Return the class of qkv or transformers that a folder's config names; None where neither has it."""
    name = named(folder)[1]
    return getattr(qkv, name, None) or getattr(transformers, name, None)


def auto_class(config: dict[str, Any], architecture: str) -> str | None:
    """Return the Auto class that gives an architecture with this config: of several, the first in `HUB_TASKS`."""
    own = [auto for auto, target in config.get("auto_map", {}).items() if target.endswith(f".{architecture}")]
    if own:
        return str(min(own, key=lambda auto: [*HUB_TASKS].index(auto) if auto in HUB_TASKS else len(HUB_TASKS)))
    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        return None
    config_class = transformers.CONFIG_MAPPING[config["model_type"]]
    for auto in dict.fromkeys((*HUB_TASKS, *filter(re.compile("AutoModel").match, dir(transformers)))):
        classes = getattr(transformers, auto)._model_mapping.get(config_class, ())
        if architecture in (each.__name__ for each in (classes if isinstance(classes, tuple) else (classes,))):
            return auto
    return None
