"""Check versions, extras, compilers and variables of the environment."""

import os
import shutil
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from qkv.scripts.common.extras import DISTRIBUTIONS, EXTRAS
from qkv.scripts.diagnosis.findings import Finding

# What each extra is for.
PURPOSES = {
    "train": "training, evaluation",
    "vision": "images, detection",
    "audio": "sound files, MIDI",
    "hub": "qkv publish",
    "sweep": "ranges in qkv sweep",
    "signing": "signatures",
    "benchmark": "contenders in qkv benchmark",
    "speech": "data=spoken-digits",
    "tensorboard": "tracker=tensorboard",
    "trackio": "tracker=trackio",
    "wandb": "tracker=wandb",
    "mlflow": "tracker=mlflow",
}
# Variables that keep libraries from the network, and those that send them elsewhere.
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
OFF = ("", "0", "false", "no", "off")
COMPILERS = ("g++", "clang++", "c++")


def extra_rows() -> dict[str, str]:
    """Return for each extra that it is installed, or how to install it and what for."""
    modules: dict[str, list[str]] = defaultdict(list)
    for module, extra in EXTRAS.items():
        modules[extra].append(module)
    rows = {}
    for extra, purpose in PURPOSES.items():
        lacking = [DISTRIBUTIONS.get(module, module) for module in modules[extra] if find_spec(module) is None]
        install = f"pip install 'qkv[{extra}]' (no {', '.join(lacking)})"
        rows[f"{extra}: {purpose}"] = install if lacking else "installed"
    return rows


def check_software(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check versions, the compiler and variables."""
    yield from check_versions(requires("qkv") or [])
    yield from check_compiler(environment)
    yield from check_variables(environment)


def check_versions(requirements: list[str]) -> Iterator[Finding]:
    """Check that what is installed is what qkv asks for; extras apart, whose absence is no fault."""
    for line in requirements:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            installed = "nothing"
        if installed == "nothing" or not requirement.specifier.contains(installed, prereleases=True):
            yield Finding(
                "broken",
                f"{requirement.name} is {installed}, and qkv asks for {requirement.specifier or 'it'}",
                "other versions are not tested, and what differs in them fails, or gives other numbers",
                f"pip install '{requirement.name}{requirement.specifier}'",
            )


def check_compiler(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check what torch.compile needs on a CPU: a compiler of C++ and Python's headers."""
    wanted = [environment["CXX"]] if environment.get("CXX") else list(COMPILERS)
    if not any(shutil.which(name, path=environment.get("PATH")) for name in wanted):
        yield Finding(
            "slow",
            f"there is no compiler of C++ ({' or '.join(wanted)})",
            "torch.compile, and so compile=true and flex attention, cannot make kernels for the CPU",
            "apt install g++, dnf install gcc-c++ or xcode-select --install; without one leave compile=false",
        )
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        yield Finding(
            "slow",
            "Python's own headers are missing (Python.h)",
            "what torch.compile makes for the CPU includes them",
            "apt install python3-dev or dnf install python3-devel, or use a Python that has them, such as uv's",
        )


def check_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check variables that slow down or cut off."""
    if environment.get("TOKENIZERS_PARALLELISM", "true").lower() in OFF:
        yield Finding(
            "slow",
            f"TOKENIZERS_PARALLELISM={environment['TOKENIZERS_PARALLELISM']} lets tokenizers use one thread",
            "large data are tokenized several times slower",
            "unset TOKENIZERS_PARALLELISM",
        )
    if set_ones := [name for name in OFFLINE if environment.get(name, "").lower() not in OFF]:
        yield Finding(
            "note",
            f"{' and '.join(set_ones)} {'is' if len(set_ones) == 1 else 'are'} set",
            "models and data of the Hub are taken from the cache alone, and what is not there is refused",
            f"unset {' '.join(set_ones)}, unless that is what you want",
        )
    if endpoint := environment.get("HF_ENDPOINT"):
        yield Finding(
            "note",
            f"HF_ENDPOINT={endpoint} replaces huggingface.co",
            "models, data and your token go there",
            "unset HF_ENDPOINT, unless it is a mirror that you trust",
        )
