"""What does a model card say? Words are the template's; numbers are those of a record, a certificate or a config."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from huggingface_hub import ModelCard

from qkv.scripts.common.files import write_atomically
from qkv.scripts.publishing.card import sections
from qkv.scripts.publishing.card import subject as card_subject
from qkv.scripts.publishing.card.heads import KINDS
from qkv.scripts.publishing.card.metadata import leaderboard_files, metadata, refuse_unknown_relation
from qkv.scripts.publishing.card.parity import parity
from qkv.scripts.publishing.card.subject import Place, Subject
from qkv.scripts.publishing.card.usage import snippets

FOLDER = Path(__file__).parents[3] / "model_cards"
TEMPLATE = FOLDER / "TEMPLATE.md"
# What the card of a training cannot do without.
REQUIRED = (
    "recipe.name recipe.title recipe.architecture recipe.model recipe.limits recipe.max_steps recipe.precision "
    "config.model_type parameters task.name task.title task.kind task.source data.sizes data.sha256 seed commit "
    "command device.type device.name device.threads device.processes versions metrics time.training_wall_s "
    "time.training_cpu_s"
).split()
NOTHING = "there is no record of a training or an evaluation, so this card says nothing about quality."
Record = dict[str, Any]


def make_card(record: Record, **place: Unpack[Place]) -> ModelCard:
    """The card of a training, every figure in which is in its record.

    ValueError names the field that a record lacks, and a kind of task, preset or form that there is not.
    """
    refuse_unfit(record)
    recipe = record["recipe"]
    subject = Subject.of(model_name(record), record["config"], recipe["architecture"], place)
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
        limits=recipe["limits"].strip() or "Nobody has written them down.",
        gaps=sections.gaps(record),
        parity=parity(subject),
        facts=sections.facts(record),
        settings=sections.settings(recipe),
        config=json.dumps(recipe["model"], indent=2),
        start=f"the preset `{recipe['preset']}`" if recipe.get("preset") else "the defaults",
        citation=sections.citation(recipe),
    )


def plain_card(
    config: dict[str, Any], *, name: str, certificate: dict[str, Any] | None = None, **place: Unpack[Place]
) -> ModelCard:
    """The card of a model that nothing is known of but its config, and a conversion's certificate where there is one.

    It says that nothing was measured. ValueError for a config that names no class, and for no certificate.
    """
    for field, what in {"model_type": "type", "architectures": "class"}.items():
        if not config.get(field):
            raise ValueError(f"the config of {name} names no {what} in {field!r}; give that of a saved model")
    subject = Subject.of(name, config, config["architectures"][0], place)
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


def rendered(subject: Subject, record: Record | None, **parts: str) -> ModelCard:
    """The template with its parts; what is not given is left out."""
    recipe, task = (record["recipe"], record["task"]) if record else ({}, {})
    return ModelCard.from_template(
        metadata(subject, record),
        template_path=str(TEMPLATE),
        subject=subject,
        snippets=snippets(subject, recipe.get("prompt", ""), task.get("usage", "")),
        **parts,
    )


def write_card(record: Path, card: Path) -> None:
    """Write the card that follows from a `record.json`; ValueError when it is not one, or a picture is missing.

    The pictures of a record with a name of its own, NAME.json, lie in a folder NAME.
    """
    place = "" if record.name == "record.json" else f"{record.stem}/"
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        refuse_unfit(facts)
        facts["pictures"] = {place + name: caption for name, caption in facts.get("pictures", {}).items()}
        native: Place = {} if facts["config"]["model_type"].startswith("qkv_") else {"form": "native"}
        text = str(make_card(facts, **native))
    except ValueError as error:
        raise ValueError(f"{record} is not the record of a finished run: {error}") from error
    if missing := [name for name in facts["pictures"] if not (card.parent / name).is_file()]:
        raise ValueError(f"{card.parent / missing[0]} is missing, which {record} names as a picture; put it there")
    write_atomically(card, text)


def companions(record: Record, folder: Path) -> dict[str, bytes]:
    """The files that go along with the card: pictures of the run folder, and results for the Hub's leaderboards."""
    drawn = {name: (folder / name).read_bytes() for name in record.get("pictures", {})}
    return drawn | {name: text.encode() for name, text in leaderboard_files(record).items()}


def model_name(record: Record) -> str:
    """The name of the model: family and recipe."""
    return f"qkv-{record['recipe']['name']}"


def auto_class(record: Record) -> str:
    """The Auto class that loads the trained architecture."""
    return card_subject.auto_class(record["config"], record["recipe"]["architecture"])


def refuse_unfit(record: Record) -> None:
    """Raise ValueError where a record says too little, or something that the card has no words for."""
    # Figures mean nothing without the size of their split.
    sizes = [f"data.sizes.{split}" for split in record.get("metrics", ())] if isinstance(record, dict) else []
    for path in (*REQUIRED, *sizes):
        if not holds(record, path.split(".", 2)):
            raise ValueError(f"the record lacks {path!r}, which a card cannot do without; a finished run writes it")
    if base := record.get("base_model"):
        refuse_unknown_relation(base)
    if record["task"]["kind"] not in KINDS:
        raise ValueError(f"the record's task.kind={record['task']['kind']!r} is not one of {', '.join(KINDS)}")


def holds(values: Any, names: Sequence[str]) -> bool:
    """Whether nested values have a field."""
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
