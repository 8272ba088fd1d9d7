"""Read from the record of a training the facts that a card does not show as they stand."""

import shlex
from dataclasses import asdict
from typing import Any

from qkv.configuration import presets
from qkv.scripts.common.environment import public_command
from qkv.scripts.publishing.card.heads import KINDS
from qkv.scripts.recipes.keys import GROUPS

Record = dict[str, Any]
RELATIONS = ("finetune", "quantized", "adapter", "merge")
# Recipe fields that stand elsewhere on the card, and those that act on example data alone.
ELSEWHERE = ("name", "title", "model", "architecture", "limits", "out", "data", "preset", "card")
OF_EXAMPLES = ("text.made", "text.symbols")


def check_record(record: Record) -> None:
    """Raise ValueError for a task or a relation to a base model that the Hub does not know."""
    base, kind, preset = record.get("base_model"), record["task"]["kind"], record["recipe"].get("preset")
    for field, value, known in (
        ("base_model.relation", base and base["relation"], (None, *RELATIONS)),
        ("task.kind", kind, KINDS),
        ("recipe.preset", preset, (None, *presets.names())),
    ):
        if value not in known:
            raise ValueError(f"the record's {field}={value!r} is not one of {', '.join(filter(None, known))}")


def published(command: str) -> str:
    """Return a command without the paths of a machine."""
    return public_command(shlex.join(word for word in shlex.split(command) if not word.startswith("out=")))


def settings(recipe: Record, *, own: bool = False) -> list[tuple[str, Any]]:
    """Return the recipe's fields that the card does not show elsewhere, spelt as on the command line.

    A group of defaults is left out, and with own data the fields that act on example data alone.
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
    return "" if preset is None else " ".join(getattr(presets, preset).__doc__.split())
