"""One transformer core, many models, each a Hugging Face citizen.

This folder is the root of the import package: `configuration/`, `modeling/` and `scripts/` are installed beneath it.
Importing it registers every `qkv_*` model type with the Auto classes and never touches the network.
"""

import os
from functools import partial, wraps
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import is_torch_available

from .configuration import *  # noqa: F403
from .configuration import __all__

try:
    __version__ = version("qkv")
except PackageNotFoundError:  # a bare checkout
    __version__ = "0+checkout"

# What users find here and commands have; imported at the first use.
LAZY = {
    "CodeCallback": "hub.callback",
    "IntegrityError": "integrity.manifest",
    "publish": "hub.publish",
    "verify": "integrity.verification",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.scripts.publishing.{LAZY[name]}"), name)


def check_on_request(model_class: Any) -> None:
    """Give a class a `from_pretrained` that with QKV_VERIFY=1 gives only what the manifest of its source says.

    IntegrityError names what differs. Copies of the code on the Hub do not have it.
    """
    load = model_class.from_pretrained.__func__

    @wraps(load)
    def from_pretrained(cls: Any, pretrained_model_name_or_path: Any, *arguments: Any, **options: Any) -> Any:
        own = partial(load, cls)
        if os.environ.get("QKV_VERIFY", "").lower() in ("", "0", "false", "no", "off"):
            return own(pretrained_model_name_or_path, *arguments, **options)
        guard = import_module(f"{__name__}.scripts.publishing.integrity.guard")
        return guard.load_checked(own, pretrained_model_name_or_path, *arguments, **options)

    model_class.from_pretrained = classmethod(from_pretrained)


def push_with_code(model_class: Any) -> None:
    """Let `push_to_hub` of a class send the code that its config names: a reader may not have qkv."""
    send = model_class._upload_modified_files

    @wraps(send)
    def upload(model: Any, working_dir: Any, repo_id: str, *arguments: Any, **options: Any) -> Any:
        # A model that was loaded with such code brings it along by itself.
        if not model.is_remote_code():
            import_module(f"{__name__}.scripts.publishing.hub.callback").complete(
                model, Path(working_dir), repo_id, **options
            )
        return send(model, working_dir, repo_id, *arguments, **options)

    model_class._upload_modified_files = upload


if is_torch_available():
    from . import modeling
    from .modeling import *  # noqa: F403

    __all__ = [*__all__, *modeling.__all__]

    check_on_request(modeling.base.QkvPreTrainedModel)
    push_with_code(modeling.base.QkvPreTrainedModel)
