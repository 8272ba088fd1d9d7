"""Derive facts for a card, and its YAML head, from the record of a training."""

import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from qkv.scripts.common.environment import public_command
from qkv.scripts.common.files import table
from qkv.scripts.data.tokenization import is_much, truncated_sentence
from qkv.scripts.publishing.card.model import OF_CHAINS, CardModel
from qkv.scripts.recipes.fields.keys import GROUPS

Record = dict[str, Any]
# Recipe fields that stand elsewhere on the card, and those that act on example data alone.
ELSEWHERE = ("name", "title", "model", "architecture", "limits", "out", "data", "preset", "card")
OF_EXAMPLES = ("text.made", "text.symbols")
LEARNT: dict[str, str] = table(__file__)
SHOWN = 20  # classes on a card


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
    return [(key, part) for key, part in rows if not (own and (part == "" or key.startswith(OF_EXAMPLES)))]


def is_own(record: Record) -> bool:
    """Tell whether the data were a person's own, and no example data: then the record says how they were split."""
    return "split" in record["data"]


def is_other_than_translation(record: Record) -> bool:
    """Tell whether the targets of a seq2seq run may be anything but translations."""
    return is_own(record) and record["task"]["kind"] == "translation" and not record["recipe"]["title"]


def title(record: Record) -> str:
    """Return the title of a model: that of a person or the recipe, or its task and its data."""
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
    """Return the facts about own data that the template lacks in the record; empty for example data."""
    if not is_own(record):
        return {}
    rows, truncated = class_rows(record), record["data"].get("truncated", {})
    return {
        "rows": rows[:SHOWN],
        "more": len(rows[SHOWN:]),
        "printable": printable,
        "truncated": truncated_sentence(truncated),
        "much_truncated": "truncated" in record["data"] and is_much(truncated),
    }


def metadata(subject: CardModel, record: dict[str, Any] | None = None) -> ModelCardData:
    """Return the YAML head of a card; unrecorded facts are left out."""
    record = record or {}
    task, base = record.get("task", {}), record.get("base_model")
    evaluations = results(record) if record else []
    is_told = task and not subject.architecture.endswith(OF_CHAINS)
    is_told = is_told and not is_other_than_translation(record)
    said = record.get("recipe", {}).get("card", {})
    return ModelCardData(
        model_name=subject.name if evaluations else None,
        # Weights that come from elsewhere have its license, and weights of own data the license that their owner says.
        license=said.get("license") or ("apache-2.0" if record and not base and not is_own(record) else None),
        library_name="transformers",
        pipeline_tag=task["kind"] if is_told else subject.task,
        tags=["qkv", subject.model_type, *([] if subject.native else ["custom_code"])],
        language=said.get("language", "").replace(",", " ").split() or task.get("language"),
        datasets=[task["dataset"]] if "dataset" in task else None,
        metrics=sorted({result.metric_type for result in evaluations}) or None,
        eval_results=evaluations or None,
        base_model_relation=base["relation"] if base else None,
        base_model=base["id"] if base else None,
    )


def results(record: dict[str, Any]) -> list[EvalResult]:
    """Return every metric of every split but validation."""
    task = record["task"]
    kind = "text2text-generation" if is_other_than_translation(record) else task["kind"]
    return [
        EvalResult(
            task_type=kind,
            dataset_type=task.get("dataset", task["name"]),
            dataset_name=task["title"],
            dataset_split=split,
            metric_type=metric,
            metric_value=round(value, 4),
        )
        for split, metrics in record["metrics"].items()
        for metric, value in metrics.items()
        if metric != "loss" and split != "validation"
    ]
