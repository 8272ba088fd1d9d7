"""Check the record of a training, and read from it what a card cannot show as it stands."""

import shlex
from dataclasses import asdict
from typing import Any

from qkv.configuration import presets
from qkv.scripts.common.environment import public_command
from qkv.scripts.publishing.card.heads import KINDS
from qkv.scripts.publishing.card.metadata import check_relation
from qkv.scripts.recipes.keys import GROUPS

Record = dict[str, Any]
# Fields that the record of a training must have.
REQUIRED = (
    "recipe.name recipe.title recipe.architecture recipe.model recipe.limits recipe.max_steps recipe.precision "
    "config.model_type parameters task.name task.title task.kind task.source data.sizes data.sha256 seed commit "
    "command device.type device.name device.threads device.processes versions metrics time.training_wall_s "
    "time.training_cpu_s"
).split()
# Recipe fields that stand elsewhere on the card.
ELSEWHERE = ("name", "title", "model", "architecture", "limits", "out", "data", "preset", "card")
# Those that act on example data alone.
OF_EXAMPLES = ("text.made", "text.symbols")


def check_record(record: Record) -> None:
    """Raise ValueError where a record lacks a field, or has a task or relation that the Hub does not know."""
    # A metric needs the size of its split.
    sizes = [f"data.sizes.{split}" for split in record.get("metrics", ())] if isinstance(record, dict) else []
    for path in (*REQUIRED, *sizes):
        if not has_field(record, *path.split(".", 2)):
            raise ValueError(f"the record lacks {path!r}, which a card cannot do without; a finished run writes it")
    if base := record.get("base_model"):
        check_relation(base)
    if record["task"]["kind"] not in KINDS:
        raise ValueError(f"the record's task.kind={record['task']['kind']!r} is not one of {', '.join(KINDS)}")


def has_field(values: Any, *names: str) -> bool:
    """Return whether nested values have a field."""
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def published(command: str) -> str:
    """Return a command without the paths of a machine."""
    return public_command(shlex.join(word for word in shlex.split(command) if not word.startswith("out=")))


def settings(recipe: Record, *, own: bool = False) -> list[tuple[str, Any]]:
    """Return the recipe's fields that the card does not show elsewhere, spelt as on the command line.

    A group of defaults is left out, and with own data what acts on example data alone.
    """
    usual = {name: asdict(group()) for name, group in GROUPS.items()}
    rows: list[tuple[str, Any]] = []
    for name, value in recipe.items():
        if name in ELSEWHERE or value is None or value == {}:
            continue
        # A record of an earlier qkv lacks the fields that a group has gained since.
        if name in usual and value.items() <= usual[name].items():
            continue
        inner = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        rows += [(key, part) for key, part in inner.items() if part is not None]
    unused = (*OF_EXAMPLES, *(["stock."] if recipe.get("model_source") == "qkv" else [])) if own else ()
    return [(key, part) for key, part in rows if not key.startswith(unused) and not (own and part == "")]


def citation(recipe: Record) -> str:
    """Return the paper of the recipe's preset."""
    preset = recipe.get("preset")
    if preset is None:
        return ""
    if preset not in presets.names():
        raise ValueError(f"the record's recipe.preset={preset!r} is not one of {', '.join(presets.names())}")
    return " ".join(getattr(presets, preset).__doc__.split())
