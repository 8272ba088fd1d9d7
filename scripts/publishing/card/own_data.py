"""Say on a card what is known of own data, of which no recipe tells: names, splits, and how far to trust figures."""

import re
from pathlib import Path
from typing import Any

from qkv.scripts.data import truncation
from qkv.scripts.publishing.card.heads import TABLES

Record = dict[str, Any]
SHOWN = 20  # classes on a card


def is_own(record: Record) -> bool:
    """Tell whether the data were a person's own, and no example data: then the record says how they were split."""
    return "split" in record["data"]


def is_other_than_translation(record: Record) -> bool:
    """Tell whether texts were written from others of which no recipe says that they are translations."""
    return is_own(record) and record["task"]["kind"] == "translation" and not record["recipe"]["title"]


def title(record: Record) -> str:
    """Return the title of a model: that of a person or the recipe, or its task and its data."""
    recipe = record["recipe"]
    if said := recipe.get("card", {}).get("title") or recipe["title"]:
        return str(said).strip().removesuffix(".")
    task, classes = record["task"], record["data"].get("classes", {}).get("train", {})
    learnt = TABLES["learnt"].get(task["kind"], task["kind"].replace("-", " ").capitalize())
    learnt = "Text regression" if learnt == "Text classification" and not classes else learnt
    return f"{learnt} on {task['title']}" + (f", {len(classes)} classes" if classes else "")


def name(record: Record) -> str:
    """Return the name of a model: that of the recipe, or of own data."""
    task, recipe = record["task"], record["recipe"]["name"]
    if not is_own(record):
        return f"qkv-{recipe}"
    last = task["name"].rpartition("/")[2]
    stem = last if task["source"] else Path(last).stem
    return f"qkv-{re.sub(r'[^a-zA-Z0-9.-]+', '-', stem).strip('-.') or recipe}"


def class_rows(record: Record) -> list[tuple[str, list[int]]]:
    """Return the classes, most frequent first, with their counts in each split."""
    counts = record["data"].get("classes", {})
    train = counts.get("train", {})
    known = sorted(set().union(*counts.values()), key=lambda each: (-train.get(each, 0), each)) if train else []
    return [(printable(each), [counts[split].get(each, 0) for split in record["data"]["sizes"]]) for each in known]


def printable(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split()) or '""'


def facts_of(record: Record) -> dict[str, Any]:
    """Return the facts about own data that the template does not read from the record; nothing for other data."""
    if not is_own(record):
        return {}
    rows, truncated = class_rows(record), record["data"].get("truncated", {})
    return {
        "rows": rows[:SHOWN],
        "more": len(rows[SHOWN:]),
        "printable": printable,
        "truncated": truncation.truncated_sentence(truncated),
        "much_truncated": "truncated" in record["data"] and truncation.is_much(truncated),
    }
