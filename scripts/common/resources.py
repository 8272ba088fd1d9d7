"""Read tables in YAML that lie beside a module."""

from pathlib import Path
from typing import Any

import yaml


def table(module: str) -> Any:
    """Return the content of the YAML file beside a module, of the same name."""
    return yaml.safe_load(Path(module).with_suffix(".yaml").read_text(encoding="utf-8"))
