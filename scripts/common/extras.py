"""Optional dependencies: which extra of the package brings a module, and the error that says so when it is missing."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

# The extra that brings each module which `pip install qkv` alone does not. `tests/test_installation.py` holds this
# table and pyproject.toml against what the code imports.
EXTRAS = {
    "OpenSSL": "signing",
    "PIL": "vision",
    "cryptography": "signing",
    "datasets": "train",
    "detect_secrets": "hub",
    "espeakng_loader": "speech",
    "evaluate": "train",
    "gradio": "demo",
    "jiwer": "train",
    "matplotlib": "train",
    "mido": "audio",
    "mlflow": "mlflow",
    "model_signing": "signing",
    "optuna": "sweep",
    "pyarrow": "train",
    "pycocotools": "vision",
    "sacrebleu": "train",
    "scipy": "audio",
    "seqeval": "train",
    "sklearn": "train",
    "soundfile": "audio",
    "tensorboard": "tensorboard",
    "timm": "benchmark",
    "trackio": "trackio",
    "wandb": "wandb",
    "x_transformers": "benchmark",
}
# Modules whose distribution has another name.
DISTRIBUTIONS = {
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "detect_secrets": "detect-secrets",
    "espeakng_loader": "espeakng-loader",
    "model_signing": "model-signing",
    "sklearn": "scikit-learn",
    "x_transformers": "x-transformers",
}


class MissingExtraError(ModuleNotFoundError):
    """A package is missing that an extra of ours brings; the message is the command that installs it."""


def load(name: str) -> ModuleType:
    """Import a module; MissingExtraError when what it imports is brought by an extra."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise explained(error) from error


def require(module: str) -> None:
    """Raise MissingExtraError unless a module can be imported, for code that would find out late."""
    if find_spec(module) is None:
        raise explained(ModuleNotFoundError(f"No module named {module!r}", name=module))


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error with the command that installs what is missing, or as it is when no extra brings that."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return error
    package = DISTRIBUTIONS.get(module, module)
    return MissingExtraError(
        f"{package} is not installed; install it with pip install 'qkv[{EXTRAS[module]}]'", name=error.name
    )
