"""One transformer core, many models, all of them Hugging Face models.

This folder is the root of the import package: `configuration/`, `modeling/` and `scripts/` are installed beneath it.
Importing it makes every `qkv_*` model type known to the Auto classes and never touches the network. The models
themselves are imported at their first use, or with the Auto classes, whichever comes first.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial, wraps
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import configuration, modeling
    from .configuration import *  # noqa: F403
    from .modeling import *  # noqa: F403
    from .scripts.publishing.hub.callback import CodeCallback as CodeCallback
    from .scripts.publishing.hub.publish import publish as publish
    from .scripts.publishing.integrity.manifest import IntegrityError as IntegrityError
    from .scripts.publishing.integrity.verify import verify as verify

    __all__ = ["CodeCallback", "IntegrityError", "publish", "verify"]
    __all__ += configuration.__all__
    __all__ += modeling.__all__

try:
    __version__ = version("qkv")
except PackageNotFoundError:  # a bare checkout
    __version__ = "0+checkout"

# The parts whose public names are names of this module too. Configs need no torch, models do.
PARTS = ("configuration", "modeling") if find_spec("torch") else ("configuration",)
COMMANDS = {
    "CodeCallback": "hub.callback",
    "IntegrityError": "integrity.manifest",
    "publish": "hub.publish",
    "verify": "integrity.verification",
}


def __getattr__(name: str) -> Any:
    """Import what the name stands for."""
    if name in COMMANDS:
        extras = import_module(f"{__name__}.scripts.common.extras")
        return getattr(extras.load(f"{__name__}.scripts.publishing.{COMMANDS[name]}"), name)
    if name in PARTS:
        return import_module(f"{__name__}.{name}")
    if name == "__all__":
        return [*COMMANDS, *(public for part in PARTS for public in import_module(f"{__name__}.{part}").__all__)]
    if not name.startswith("_"):
        for part in PARTS:
            module = import_module(f"{__name__}.{part}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what is imported at its first use too."""
    return [*globals(), *__getattr__("__all__")]


class RegisteringLoader(SourceFileLoader):
    """Load a module of transformers that holds Auto classes, then the part of ours that registers with them."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module and import our part."""
        super().exec_module(module)
        import_module(f"{__name__}.{AUTO_CLASSES[module.__name__]}")


class RegisteringFinder:
    """Find the modules of transformers that hold Auto classes: importing them takes longer than all of `import qkv`."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's own spec with another loader, or None for any other module."""
        spec = PathFinder.find_spec(name, path, target) if name in AUTO_CLASSES else None
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        return spec_from_file_location(name, spec.origin, loader=RegisteringLoader(name, spec.loader.path))


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


# The modules of transformers that hold Auto classes, and which part of ours registers with them.
AUTO_CLASSES = {f"transformers.models.auto.{part}_auto": part for part in PARTS}

sys.meta_path.insert(0, RegisteringFinder)
for holder, part in AUTO_CLASSES.items():
    if holder in sys.modules:
        import_module(f"{__name__}.{part}")
