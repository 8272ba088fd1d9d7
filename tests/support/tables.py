"""Tables that tests are made of, in YAML beside the file that reads them."""

from pathlib import Path
from typing import Any

import yaml


def beside(file: str) -> Any:
    """Read the table of a Python file: same folder, same name, other suffix."""
    return yaml.safe_load(Path(file).with_suffix(".yaml").read_text())
