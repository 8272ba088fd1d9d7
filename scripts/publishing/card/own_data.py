"""Say on a card what is known of own data, of which no recipe tells: names, splits, what figures on them are worth."""

import re
from pathlib import Path
from typing import Any

from qkv.scripts.data import truncation

Record = dict[str, Any]
# What is learnt in kinds of tasks that the Hub calls otherwise.
LEARNT = {
    "automatic-speech-recognition": "Speech recognition",
    "fill-mask": "Masked language modeling",
    "text-generation": "Causal language modeling",
    "translation": "Text-to-text generation",
    "zero-shot-image-classification": "Contrastive learning of images and texts",
}
SHOWN, REASONS, SMALL = 20, 3, 100  # classes and reasons on a card; rows of a split with rough figures


def is_own(record: Record) -> bool:
    """Tell whether the data were a person's own, and no example data: then the record says how they were split."""
    return "split" in record["data"]


def is_other_than_translation(record: Record) -> bool:
    """Tell whether texts were written from others of which no recipe says that they are translations."""
    return is_own(record) and record["task"]["kind"] == "translation" and not record["recipe"]["title"]


def title(record: Record) -> str:
    """Return the title of a model: what a person or the recipe calls it, or its task and its data."""
    recipe = record["recipe"]
    if said := recipe.get("card", {}).get("title") or recipe["title"]:
        return str(said).strip().removesuffix(".")
    task, classes = record["task"], record["data"].get("classes", {}).get("train", {})
    learnt = LEARNT.get(task["kind"], task["kind"].replace("-", " ").capitalize())
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


def class_rows(record: Record) -> tuple[list[tuple[str, list[int]]], int]:
    """Return the most frequent classes with their counts in each split, and how many classes there are beside them."""
    counts = record["data"]["classes"]
    known = sorted(set().union(*counts.values()), key=lambda each: (-counts["train"].get(each, 0), each))
    shown = [(printable(each), [counts[split].get(each, 0) for split in record["data"]["sizes"]]) for each in known]
    return shown[:SHOWN], len(known[SHOWN:])


def printable(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split()) or '""'


def facts_of(record: Record) -> dict[str, Any]:
    """Return what the template says about own data beside what stands in the record; nothing for other data."""
    if not is_own(record):
        return {}
    data, bad = record["data"], record.get("bad_records", {})
    classes = data.get("classes", {}).get("train", {})
    rows, more = class_rows(record) if classes else ([], 0)
    rarest = min(classes, key=lambda each: classes[each], default=None)
    return {
        "rows": rows,
        "more": more,
        "smallest": None if rarest is None else (printable(rarest), classes[rarest]),
        "majority": printable(data["majority"]["class"]) if "majority" in data else "",
        "skipped": bad.get("skipped", 0),
        "reasons": [(printable(why), count) for why, count in list(bad.get("reasons", {}).items())[:REASONS]],
        "truncated": truncation.truncated_sentence(data.get("truncated", {})),
        "much_truncated": "truncated" in data and truncation.is_much(data["truncated"]),
        "small": {split: size for split, size in data["sizes"].items() if size and size < SMALL and split != "train"},
    }
