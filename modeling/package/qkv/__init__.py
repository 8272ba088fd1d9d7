"""One transformer core, many models, all of them Hugging Face models.

This folder is the root of the import package: `configuration/`, `modeling/` and `scripts/` are installed beneath it. In
a checkout they stand in its root.
Importing it imports all models and makes every `qkv_*` model type known to the Auto classes and to PEFT. It never
touches the network. Functions that need more than the base requirements are imported at their first use.
"""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import configuration, modeling
    from .configuration import *
    from .modeling import *
    from .scripts.attention.capture import capture_attention as capture_attention
    from .scripts.attention_view.view import attend as attend
    from .scripts.conformance.report import conform as conform
    from .scripts.conformance.report import parametrize_with_checks as parametrize_with_checks
    from .scripts.context.extension import extend as extend
    from .scripts.probes.induction import induction_score as induction_score
    from .scripts.probes.inspection import inspect as inspect
    from .scripts.publishing.hub.callback import CodeCallback as CodeCallback
    from .scripts.publishing.hub.publish import publish as publish
    from .scripts.publishing.integrity.manifest import IntegrityError as IntegrityError
    from .scripts.publishing.integrity.verification import verify as verify
    from .scripts.web_demo.server import demo as demo

    __all__ = ["CodeCallback", "IntegrityError", "attend", "capture_attention", "conform", "demo", "extend"]
    __all__ += ["induction_score", "inspect", "parametrize_with_checks", "publish", "verify"]
    __all__ += configuration.__all__
    __all__ += modeling.__all__

try:
    __version__ = version("qkv")
except PackageNotFoundError:  # a bare checkout
    __version__ = "0+checkout"

if not Path(__file__).with_name("modeling").is_dir():
    __path__.append(str(Path(__file__).parents[3]))

COMMANDS = {
    "CodeCallback": "publishing.hub.callback",
    "IntegrityError": "publishing.integrity.manifest",
    "attend": "attention_view.view",
    "capture_attention": "attention.capture",
    "conform": "conformance.report",
    "demo": "web_demo.server",
    "extend": "context.extension",
    "induction_score": "probes.induction",
    "inspect": "probes.inspection",
    "parametrize_with_checks": "conformance.report",
    "publish": "publishing.hub.publish",
    "verify": "publishing.integrity.verification",
}


def __getattr__(name: str) -> Any:
    """Import a function of scripts/ at its first use; all but the requirements that it lacks is an AttributeError."""
    if name not in COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    extras = import_module(f"{__name__}.scripts.common.extras")
    return getattr(extras.load(f"{__name__}.scripts.{COMMANDS[name]}"), name)


def __dir__() -> list[str]:
    """List the functions that are imported at their first use, too."""
    return [*globals(), *COMMANDS]


def import_models() -> None:
    """Import all configs and models, which registers them, and make their names those of this module."""
    if len(__all__) > len(COMMANDS):
        return
    for part in ("configuration", "modeling"):
        module = import_module(f"{__name__}.{part}")
        globals().update({name: getattr(module, name) for name in module.__all__})
        __all__.extend(module.__all__)


if not TYPE_CHECKING:
    __all__ = [*COMMANDS]
    # The command answers --help first.
    if not getattr(sys.modules.get("qkv_command"), "starting", False):
        import_models()
