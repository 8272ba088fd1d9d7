"""Write model cards: the words are the template's, the numbers those of a record, a certificate or a config."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from qkv.scripts.common.files import write_atomically
from qkv.scripts.publishing.card import sections
from qkv.scripts.publishing.card.heads import KINDS
from qkv.scripts.publishing.card.metadata import check_relation, leaderboard_files, metadata
from qkv.scripts.publishing.card.model import CardModel, Place
from qkv.scripts.publishing.card.parity import parity
from qkv.scripts.publishing.card.usage import snippets

FOLDER = Path(__file__).parents[3] / "model_cards"
TEMPLATE = FOLDER / "TEMPLATE.md"
# Fields that the record of a training must have.
REQUIRED = (
    "recipe.name recipe.title recipe.architecture recipe.model recipe.limits recipe.max_steps recipe.precision "
    "config.model_type parameters task.name task.title task.kind task.source data.sizes data.sha256 seed commit "
    "command device.type device.name device.threads device.processes versions metrics time.training_wall_s "
    "time.training_cpu_s"
).split()
NOTHING = "there is no record of a training or an evaluation, so this card says nothing about quality."
Record = dict[str, Any]


def make_card(record: Record, **place: Any) -> ModelCard:
    """Return the card of a training; every number in it is in its record. `place` are the fields of `Place`.

    ValueError names the field that a record lacks, and an unknown kind of task, preset or form.
    """
    check_record(record)
    recipe = record["recipe"]
    subject = CardModel.of(model_name(record), record["config"], recipe["architecture"], Place(**place))
    made = "trained from scratch"
    if base := record.get("base_model"):
        made = f"made from [{base['id']}](https://huggingface.co/{base['id']}) ({base['relation']})"
    return rendered(
        subject,
        record,
        origin="the record of a run",
        source="the recipe",
        about=f"{recipe['title']}. A `{subject.architecture}` of {record['parameters']:,} parameters, {made} with qkv.",
        results=sections.results(subject.name, record),
        kept=sections.kept(record),
        seed=str(record["seed"]),
        seeds=", ".join(map(str, sections.seeds(record))),
        comparison=sections.comparison(record),
        pictures=sections.pictures(record),
        limits=recipe["limits"].strip() or "None are written down.",
        gaps=sections.gaps(record),
        parity=parity(subject),
        facts=sections.facts(record),
        settings=sections.settings(recipe),
        config=json.dumps(recipe["model"], indent=2),
        start=f"the preset `{recipe['preset']}`" if recipe.get("preset") else "the defaults",
        citation=sections.citation(recipe),
    )


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
    compared = parity(subject, certificate)
    count = f" of {certificate['target']['parameters']:,} parameters" if certificate else ""
    return rendered(
        subject,
        None,
        origin="a config" + (" and the certificate of a conversion" if certificate else ""),
        source="the model",
        about=f"A `{subject.architecture}`{count}, written by qkv. What it was trained on and for is not recorded.",
        gaps=f"Everything{' but parity' if certificate else ''}: {NOTHING}",
        parity=compared,
        config=json.dumps(subject.differences(), indent=2),
        start="the defaults",
    )


def rendered(subject: CardModel, record: Record | None, **parts: str) -> ModelCard:
    """Fill the template; sections that are not given are left out."""
    recipe, task = (record["recipe"], record["task"]) if record else ({}, {})
    return ModelCard.from_template(
        metadata(subject, record),
        template_path=str(TEMPLATE),
        subject=subject,
        snippets=snippets(subject, recipe.get("prompt", ""), task.get("usage", "")),
        **parts,
    )


def write_card(record: Path, card: Path) -> None:
    """Write the card of a `record.json`; ValueError when it is not one, or a picture beside it is missing."""
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        check_record(facts)
        ours = facts["config"]["model_type"].startswith("qkv_")
        text = str(make_card(facts, form="self-contained" if ours else "native"))
    except ValueError as error:
        raise ValueError(f"{record} is not the record of a finished run: {error}") from error
    if missing := [name for name in facts.get("pictures", {}) if not (card.parent / name).is_file()]:
        raise ValueError(f"{card.parent / missing[0]} is missing, which {record} names as a picture; put it there")
    write_atomically(card, text)


def companions(record: Record, folder: Path) -> dict[str, bytes]:
    """Return the files of a card: pictures of the run folder, and results for the Hub's leaderboards."""
    drawn = {name: (folder / name).read_bytes() for name in record.get("pictures", {})}
    return drawn | {name: text.encode() for name, text in leaderboard_files(record).items()}


def model_name(record: Record) -> str:
    """Return the name of the model."""
    return f"qkv-{record['recipe']['name']}"


def check_record(record: Record) -> None:
    """Raise ValueError where a record lacks a field, or has a task or relation that the Hub does not know."""
    # A metric needs the size of its split.
    sizes = [f"data.sizes.{split}" for split in record.get("metrics", ())] if isinstance(record, dict) else []
    for path in (*REQUIRED, *sizes):
        if not has_field(record, path.split(".", 2)):
            raise ValueError(f"the record lacks {path!r}, which a card cannot do without; a finished run writes it")
    if base := record.get("base_model"):
        check_relation(base)
    if record["task"]["kind"] not in KINDS:
        raise ValueError(f"the record's task.kind={record['task']['kind']!r} is not one of {', '.join(KINDS)}")


def has_field(values: Any, names: Sequence[str]) -> bool:
    """Return whether nested values have a field."""
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
