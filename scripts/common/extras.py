"""Optional dependencies: the extra of the package that brings a module, and the error that names it."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from types import ModuleType

from packaging.requirements import Requirement

# Modules whose distribution has another name.
DISTRIBUTIONS = {"OpenSSL": "pyopenssl", "PIL": "pillow", "sklearn": "scikit-learn"}


class MissingExtraError(ModuleNotFoundError):
    """A package is missing that an extra of ours brings; the message is the command that installs it."""


def load(name: str) -> ModuleType:
    """Import a module; MissingExtraError for a missing package of an extra."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise explained(error) from error


def require(module: str) -> None:
    """Raise MissingExtraError unless a module can be imported, for code that would find out late."""
    if find_spec(module) is None:
        raise explained(ModuleNotFoundError(f"No module named {module!r}", name=module))


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error with the command that installs the module, or the error itself where no extra brings it."""
    module = (error.name or "").partition(".")[0]
    package = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    extra = extra_of(package)
    if extra is None:
        return error
    return MissingExtraError(f"{package} is not installed; install it with pip install 'qkv[{extra}]'", name=error.name)


def extra_of(package: str) -> str | None:
    """Return the first extra of pyproject.toml that brings a package, if any; none is known in a bare checkout."""
    try:
        rows = [Requirement(row) for row in requires("qkv") or ()]
    except PackageNotFoundError:
        return None
    markers = (str(row.marker) for row in rows if row.name.replace("_", "-") == package and row.marker)
    return next((marker.partition('extra == "')[2].partition('"')[0] for marker in markers if "extra" in marker), None)
