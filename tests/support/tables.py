"""Tables that tests are made of, in YAML beside the file that reads them."""

from pathlib import Path
from typing import Any

import yaml


def beside(file: str, name: str = "") -> Any:
    """Read the table of a Python file: in the same folder, of the same name or of another."""
    path = Path(file)
    return yaml.safe_load((path.with_name(name) if name else path.with_suffix(".yaml")).read_text(encoding="utf-8"))
