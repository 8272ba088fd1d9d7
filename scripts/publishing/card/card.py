"""Write model cards: the words are the template's, the numbers those of a record, a certificate or a config."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.tables import format_metric, format_range
from qkv.scripts.common.templates import render
from qkv.scripts.publishing.card.metadata import metadata
from qkv.scripts.publishing.card.model import CardModel, Place
from qkv.scripts.publishing.card.own_data import facts_of, is_own, name, title
from qkv.scripts.publishing.card.parity import check_certificate, parity_rows, worst_layers
from qkv.scripts.publishing.card.record import Record, check_record, citation, published, settings
from qkv.scripts.publishing.card.usage import TEMPLATES, programs
from qkv.scripts.recipes.loading import names

FOLDER = Path(__file__).parents[3] / "model_cards"


def make_card(record: Record, **place: Any) -> ModelCard:
    """Return the card of a training; every number in it is in its record. `place` are the fields of `Place`.

    ValueError names the field that a record lacks, and an unknown kind of task, preset or form.
    """
    check_record(record)
    recipe = record["recipe"]
    subject = CardModel.of(name(record), record["config"], recipe["architecture"], Place(**place))
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
        drawn_by=drawn_by(record),
        measured={name for metrics in record["metrics"].values() for name in metrics},
        command=published(record["command"]),
        settings=settings(recipe, own=is_own(record)),
        citation=citation(recipe),
    )


def drawn_by(record: Record) -> str | None:
    """Return the command that trains a recipe of qkv again and draws all its pictures; None for other trainings."""
    recipe = record["recipe"]["name"]
    return f"qkv quickstart {recipe}" if record.get("pictures") and recipe in names() and not is_own(record) else None


def plain_card(
    config: dict[str, Any], *, name: str, certificate: dict[str, Any] | None = None, **place: Any
) -> ModelCard:
    """Return the card of a model of which only the config is known, and perhaps the certificate of a conversion.

    It says that nothing was measured. ValueError for a config that names no class, and for a wrong certificate.
    """
    for field, what in {"model_type": "type", "architectures": "class"}.items():
        if not config.get(field):
            raise ValueError(f"the config of {name} names no {what} in {field!r}; give that of a saved model")
    subject = CardModel.of(name, config, config["architectures"][0], Place(**place))
    worst = None
    if certificate:
        check_certificate(certificate, subject.architecture)
        worst = worst_layers(certificate)
    return rendered(subject, subject.differences(), certificate=certificate, worst=worst)


def rendered(subject: CardModel, config: dict[str, Any], record: Record | None = None, **facts: Any) -> ModelCard:
    """Fill the template; sections of what is not known are left out."""
    recipe, task = (record["recipe"], record["task"]) if record else ({}, {})
    parity, measured_with = parity_rows(subject.stock)
    facts = {"certificate": None, "citation": "", "own": {}, "recipe": recipe, "record": record, **facts}
    sample = task.get("sample", {})
    prompt = recipe.get("prompt") or sample.get("prompt", "")
    text = render(
        TEMPLATES / "card.md.j2",
        metadata=metadata(subject, record),
        subject=subject,
        programs=programs(
            subject, prompt, task.get("usage", ""), about=sample.get("about", ""), pair=sample.get("pair", "")
        ),
        config=json.dumps(config, indent=2),
        parity=parity,
        measured_with=measured_with,
        thousands="{:,}".format,
        format_metric=format_metric,
        format_range=format_range,
        **facts,
    )
    return ModelCard(text.strip())


def record_card(record: Path, **place: Any) -> str:
    """Return the card of a `record.json`; ValueError when it is not one, or a picture beside it is missing.

    `place` are the fields of `Place`.
    """
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        check_record(facts)
        ours = facts["config"]["model_type"].startswith("qkv_")
        text = str(make_card(facts, form="self-contained" if ours else "native", **place))
    except ValueError as error:
        raise ValueError(f"{record} is not the record of a finished run: {error}") from error
    if missing := [name for name in facts.get("pictures", {}) if not (record.parent / name).is_file()]:
        raise ValueError(f"{record.parent / missing[0]} is missing, which {record} names as a picture; put it there")
    return text


def write_card(record: Path, card: Path, **place: Any) -> None:
    """Write the card of a `record.json`; ValueError as `record_card`."""
    write_atomically(card, record_card(record, **place))


def companions(record: Record, folder: Path) -> dict[str, bytes]:
    """Return the pictures that lie in the run folder and stand on the card."""
    return {name: (folder / name).read_bytes() for name in record.get("pictures", {})}
