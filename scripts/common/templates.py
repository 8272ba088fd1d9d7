"""Fill Jinja templates with facts."""

from pathlib import Path
from textwrap import fill
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: Any) -> str:
    """Fill a template, which may import others beside it; `paragraph` breaks a text into lines of 120 characters."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["paragraph"] = lambda text: fill(" ".join(text.split()), 120) + "\n"
    return environment.get_template(template.name).render(values)
