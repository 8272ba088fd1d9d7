"""Write model cards: the words are the template's, the numbers those of a record, a certificate or a config."""

import json
import re
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from jinja2 import UndefinedError

from qkv.configuration import presets
from qkv.scripts.common.tables import format_metric, format_range
from qkv.scripts.common.templates import render
from qkv.scripts.publishing.card.model import CardModel, describe, differences
from qkv.scripts.publishing.card.record import Record, facts_of, is_own, metadata, name, published, settings, title
from qkv.scripts.publishing.card.usage import TEMPLATES, programs
from qkv.scripts.recipes.loading import names

FOLDER = Path(__file__).parents[3] / "model_cards"
PAGE = FOLDER / "PARITY.md"
MEASURED_WITH = re.compile(r"^(transformers \S+, torch \S+, \S+)\.$", re.MULTILINE)


def make_card(record: Record, **place: Any) -> ModelCard:
    """Return the card of a training; every number in it is in its record. `place` are fields of `CardModel`.

    ValueError names the field that a record lacks, and a form that does not exist.
    """
    try:
        recipe = record["recipe"]
        subject = describe(name(record), record["config"], recipe["architecture"], **place)
        is_recipe = record.get("pictures") and recipe["name"] in names() and not is_own(record)
        return rendered(
            subject,
            recipe["model"],
            record=record,
            recipe=recipe,
            task=record["task"],
            base=record.get("base_model"),
            comparison={"seeds": [record["seed"]], "models": {}, **record.get("comparison", {})},
            title=title(record),
            own=facts_of(record),
            drawn_by=f"qkv quickstart {recipe['name']}" if is_recipe else None,
            measured={name for metrics in record["metrics"].values() for name in metrics},
            command=published(record["command"]),
            settings=settings(recipe, own=is_own(record)),
            citation=" ".join(getattr(presets, recipe["preset"]).__doc__.split()) if recipe.get("preset") else "",
        )
    except (KeyError, AttributeError, UndefinedError) as error:
        raise ValueError(f"the record lacks a field that a card cannot do without ({error})") from error


def plain_card(
    config: dict[str, Any], *, name: str, certificate: dict[str, Any] | None = None, **place: Any
) -> ModelCard:
    """Return the card of a model from its config and, if any, the certificate of its conversion.

    It says that nothing was measured. ValueError for a config that names no class, and for a wrong certificate.
    """
    for field in ("model_type", "architectures"):
        if not config.get(field):
            raise ValueError(f"the config of {name} has no {field!r}; give that of a saved model")
    subject = describe(name, config, config["architectures"][0], **place)
    if not certificate:
        return rendered(subject, differences(config))
    try:
        classes = [certificate[side]["class"] for side in ("source", "target")]
        if subject.architecture not in classes:
            both = " and ".join(classes)
            raise ValueError(f"the certificate is of {both}, and this model is a {subject.architecture}")
        return rendered(subject, differences(config), certificate=certificate, worst=worst_layers(certificate))
    except (KeyError, UndefinedError) as error:
        raise ValueError(f"the certificate of qkv convert --check lacks a field ({error})") from error


def worst_layers(certificate: dict[str, Any]) -> dict[str, tuple[str, dict[str, float]]]:
    """Return {precision: (the layer with the largest relative difference, its numbers)}."""
    layers = certificate["layers"]

    def relative(layer: str, precision: str) -> float:
        return float(layers[layer][precision]["max"] / (layers[layer][precision]["scale"] or 1.0))

    worst = {each: max(layers, key=lambda layer: relative(layer, each)) for each in certificate["limits"]}
    return {precision: (layer, layers[layer][precision]) for precision, layer in worst.items()}


def rendered(subject: CardModel, config: dict[str, Any], record: Record | None = None, **facts: Any) -> ModelCard:
    """Fill the template, which leaves out the sections of unknown facts."""
    recipe, task = (record["recipe"], record["task"]) if record else ({}, {})
    page, sample = PAGE.read_text(encoding="utf-8"), task.get("sample", {})
    parity = [row for row in page.splitlines() if row.startswith(f"| {subject.stock} | ") and "| Qkv" in row]
    facts = {"certificate": None, "citation": "", "own": {}, "recipe": recipe, "record": record, **facts}
    prompt = recipe.get("prompt") or sample.get("prompt", "")
    text = render(
        TEMPLATES / "card.md.j2",
        metadata=metadata(subject, record),
        subject=subject,
        programs=programs(subject, prompt, task.get("usage", ""), pair=sample.get("pair", "")),
        config=json.dumps(config, indent=2),
        parity=parity,
        measured_with="".join(MEASURED_WITH.findall(page)),
        thousands=lambda count: f"{int(count):,}",
        format_metric=format_metric,
        format_range=format_range,
        **facts,
    )
    return ModelCard(text.strip())


def record_card(record: Path, **place: Any) -> str:
    """Return the card of a `record.json`; ValueError when it is not one, or a picture beside it is missing."""
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        is_ours = facts["config"]["model_type"].startswith("qkv_")
        text = str(make_card(facts, form="self-contained" if is_ours else "native", **place))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{record} is not the record of a finished run: {error}") from error
    if missing := [name for name in facts.get("pictures", {}) if not (record.parent / name).is_file()]:
        raise ValueError(f"{record.parent / missing[0]} is missing, which {record} names as a picture; put it there")
    return text
