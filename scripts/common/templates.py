"""Fill Jinja templates with facts."""

from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: Any) -> str:
    """Fill a template, which may import others beside it; `paragraph` breaks a text into lines of 120 characters."""
    return environment(template.parent).get_template(template.name).render(values)


@cache
def environment(folder: Path) -> Environment:
    """Return the environment of the templates of a folder, which caches them."""
    made = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["paragraph"] = lambda text: fill(" ".join(text.split()), 120) + "\n"
    return made
