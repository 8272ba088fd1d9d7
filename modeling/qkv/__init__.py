"""One transformer core, many models, each a Hugging Face citizen.

This folder is the root of the import package: `configuration/`, `modeling/` and `scripts/` are installed beneath it.
Importing it registers every `qkv_*` model type with the Auto classes and never touches the network.
"""

from importlib.metadata import PackageNotFoundError, version

from transformers import is_torch_available

from .configuration import *  # noqa: F403
from .configuration import __all__

try:
    __version__ = version("qkv")
except PackageNotFoundError:  # a bare checkout
    __version__ = "0+checkout"

if is_torch_available():
    from . import modeling
    from .modeling import *  # noqa: F403

    __all__ = [*__all__, *modeling.__all__]
