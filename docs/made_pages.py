"""Pages that follow from the package: one for each public name, preset and command, one of pictures."""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import qkv
from qkv.configuration.configuration_base import QkvConfig
from qkv.scripts.arguments import COMMANDS, about, parser_of
from qkv.scripts.list_recipes import row
from qkv.scripts.publishing.card.model import changed
from qkv.scripts.recipes.fields.keys import explained
from qkv.scripts.recipes.loading import load, names, read_card

ROOT = Path(__file__).resolve().parents[1]
Pages = Iterator[tuple[str, str]]
Record = dict[str, Any]
# Beginnings of lines in docstrings that start a paragraph.
LABELS = ("Acts at:", "Source:", "Shapes:", "Example:", "Raises:", "Usage:")
API = {
    "Configs": lambda name: name.endswith("Config"),
    "Models": lambda name: name.startswith("Qkv") and not name.endswith("Config"),
    "Functions and classes": lambda name: not name.startswith("Qkv") and name != "presets",
}


def write(folder: Path) -> None:
    """Write all pages into a folder; unchanged pages keep their time."""
    pages = dict(made())
    for stale in {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - pages.keys():
        (folder / stale).unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def made() -> Pages:
    """Yield path and text of every page."""
    yield from api_pages()
    yield from preset_pages()
    yield from command_pages()
    yield "gallery.md", gallery()


def contents(pages: Iterable[str], caption: str = "") -> str:
    """Return a table of contents of pages in the same folder."""
    return "\n".join(["```{toctree}", ":maxdepth: 1", f":caption: {caption}" if caption else "", "", *pages, "```", ""])


def api_pages() -> Pages:
    """Yield a page for each public name of `qkv`, and one that lists them."""
    listing = "# Python\n\n"
    for title, belongs in API.items():
        public = sorted(filter(belongs, qkv.__all__))
        listing += f"## {title}\n\n{contents(public)}\n"
        for name in public:
            yield f"api/{name}.md", f"# {name}\n\n{documented(name)}"
    yield "api/index.md", listing


def documented(name: str) -> str:
    """Return the documentation of a public name: of a model with its inputs, of a config with its fields."""
    value = getattr(qkv, name)
    directive = f"autoclass:: qkv.{name}()" if isinstance(value, type) else f"autofunction:: qkv.{name}"
    members = "   :members: forward\n" if hasattr(value, "forward") else ""
    source = Path(inspect.getfile(inspect.unwrap(value))).relative_to(ROOT).as_posix()
    text = f"```{{eval-rst}}\n.. {directive}\n{members}```\n\nSource: [{source}](../../../{source})\n"
    return text + listed_fields(value) if name.endswith("Config") else text


def listed_fields(config: Any) -> str:
    """Return the fields of a config, and of its parts: a link, or the fields where the class is not public."""
    text = f"\n## Fields\n\n{definitions(config)}"
    for part, kind in config.sub_configs.items():
        name = kind.__name__
        linked = f"`{part}` has the fields of [{name}]({name}.md).\n\n"
        text += linked if name in qkv.__all__ else f"### Fields of `{part}`\n\n{definitions(kind)}"
    return text


def definitions(config: Any) -> str:
    """Return each documented field of a config as a definition: default and meaning."""
    text = ""
    bases = [base for base in reversed(config.__mro__) if issubclass(base, QkvConfig)]
    meanings = {name: meaning for base in bases for name, (_, meaning) in explained(base.__doc__).items()}
    for field in dataclasses.fields(config):
        if field.name in meanings:
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            text += f"`{field.name}` = `{default!r}`\n: {meanings[field.name]}\n\n"
    return text


def preset_pages() -> Pages:
    """Yield a page for each preset, with the fields that it sets, and one that lists them."""
    presets = qkv.presets.names()
    yield "presets/index.md", f"# Presets\n\n{contents(presets)}"
    for name in presets:
        config = getattr(qkv.presets, name)()
        kind = type(config).__name__
        text = f"# presets.{name}\n\n```{{eval-rst}}\n.. autofunction:: qkv.presets.{name}\n```\n\n"
        yield (
            f"presets/{name}.md",
            f"{text}It is this [{kind}](../api/{kind}.md):\n\n{code_of(config)}",
        )


def code_of(config: QkvConfig) -> str:
    """Return the call that gives a config, with the fields that differ from their defaults."""
    default = type(config)()
    fields = changed(config.to_dict(), default.to_dict())
    own = {name: value for name, value in fields.items() if name in vars(config)}  # others are said of a part
    for field in dataclasses.fields(config):
        follows, value = field.metadata.get("follows"), getattr(config, field.name)
        if follows and value != follows(config):  # the default's value, which these fields would change
            own.setdefault(field.name, value)
    if config.num_labels != default.num_labels:
        own["num_labels"] = config.num_labels
    rows = "".join(f"    {name}={literal(value)},\n" for name, value in own.items())
    return f"```python\n{type(config).__name__}(\n{rows})\n```\n"


def literal(value: object) -> str:
    """Return a value as it is written in Python, a dict with a row for each entry."""
    if not isinstance(value, dict):
        return repr(value)
    rows = "".join(f"        {name!r}: {one!r},\n" for name, one in value.items())
    return f"{{\n{rows}    }}"


def command_pages() -> Pages:
    """Yield a page for each command, and one that lists them."""
    yield "commands/index.md", f"# Every command\n\n{contents(COMMANDS)}"
    for name in COMMANDS:
        description, example = about(name)
        rows = [
            (" ".join(action.option_strings) or action.dest, action.metavar or action.choices or "", action.help or "")
            for action in parser_of(name)._actions
        ]
        options = "\n".join(f"| `{word}` | {cell(value)} | {cell(meaning)} |" for word, value, meaning in rows)
        table = f"| option | value | meaning |\n|---|---|---|\n{options}\n"
        yield f"commands/{name}.md", f"# qkv {name}\n\n{description}\n\n```bash\n{example}\n```\n\n{table}"


def cell(value: Iterable[object]) -> str:
    """Return the text of a cell, or of several words."""
    text = value if isinstance(value, str) else ", ".join(map(str, value))
    return text.replace("|", "\\|")


def gallery() -> str:
    """Return the page of every recipe's pictures and results."""
    sections = [(name, record) for name in names() if (record := read_card(name))]
    text = (
        "# Gallery\n\nEvery recipe that a laptop trains, with the pictures of its run: its outputs, its attention "
        "and its learning curve. The command of each trains it again and draws them all.\n\n"
    )
    return text + "\n".join(shown(name, record) for name, record in sections)


def shown(name: str, record: Record) -> str:
    """Return the section of a recipe: its title, results and pictures."""
    recipe, card = load(name), f"../../model_cards/{name}"
    *_, size, result, minutes = row(recipe, record).values()
    links = f"[card]({card}/card.md), [recipe](../../scripts/recipes/{name}.yaml)"
    facts = f"{recipe.title}. {size} parameters, {result}, {minutes} min on a CPU: {links}."
    shown_first = sorted(record["pictures"].items(), key=lambda picture: picture[0] == "curve.png")
    pictures = "\n".join(f"![{text}]({card}/{file})\n\n*{text}.*\n" for file, text in shown_first)
    return f"## {name}\n\n{facts}\n\n```bash\nqkv quickstart {name}\n```\n\n{pictures}"
