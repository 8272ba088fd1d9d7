"""What does a model card say? Only what the record of a run says: words are the template's, numbers the record's."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

TEMPLATE = Path(__file__).parents[2] / "model_cards" / "TEMPLATE.md"
# What a user of the finished model hands to the pipeline.
EXAMPLES = {"image-classification": "image.png"}
# Recipe fields that stand elsewhere on the card.
ELSEWHERE = ("name", "title", "model", "architecture", "limits", "out", "data")


def write_card(record: Path, card: Path) -> None:
    """Write the card that follows from a `record.json`; ValueError when it is not one."""
    try:
        text = str(make_card(json.loads(record.read_text(encoding="utf-8"))))
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{record} is not the record of a finished run: {error!r}") from error
    card.write_text(text, encoding="utf-8")


def make_card(record: dict[str, Any]) -> ModelCard:
    """The card of a run, with the metadata the Hub reads."""
    recipe, task = record["recipe"], record["task"]
    return ModelCard.from_template(
        metadata(record),
        template_path=str(TEMPLATE),
        name=model_name(record),
        title=recipe["title"],
        limits=recipe["limits"].strip(),
        architecture=recipe["architecture"],
        auto_class=auto_class(record),
        parameters=f"{record['parameters']:,}",
        seed=record["seed"],
        kind=task["kind"],
        example=EXAMPLES[task["kind"]],
        results=results(record),
        training=training(record),
        data_title=task["title"],
        data_source=task["source"],
        data_sizes=", ".join(f"{size:,} {split}" for split, size in record["data"]["sizes"].items()),
        data_sha256=record["data"]["sha256"],
        command=record["command"],
        settings=table(("setting", "value"), settings(recipe)),
        config=json.dumps(recipe["model"], indent=2),
    )


def model_name(record: dict[str, Any]) -> str:
    """The name of the model: family and recipe."""
    return f"qkv-{record['recipe']['name']}"


def auto_class(record: dict[str, Any]) -> str:
    """The Auto class that loads the trained architecture."""
    architecture = record["recipe"]["architecture"]
    return next(name for name, target in record["config"]["auto_map"].items() if target.endswith(f".{architecture}"))


def metadata(record: dict[str, Any]) -> ModelCardData:
    """The YAML head of the card."""
    task = record["task"]
    found = [
        EvalResult(
            task_type=task["kind"],
            dataset_type=task["name"],
            dataset_name=task["title"],
            dataset_split=split,
            metric_type=metric,
            metric_value=round(value, 4),
        )
        for split, metrics in record["metrics"].items()
        for metric, value in metrics.items()
        # Nobody else has the split that was watched in training.
        if metric != "loss" and split != "validation"
    ]
    return ModelCardData(
        model_name=model_name(record),
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag=task["kind"],
        tags=["qkv", record["config"]["model_type"], "custom_code"],
        metrics=sorted({result.metric_type for result in found}),
        eval_results=found,
    )


def results(record: dict[str, Any]) -> str:
    """Metrics of the model and of what it is compared with, a table for each split."""
    tables = []
    for split, metrics in record["metrics"].items():
        header = (f"{split} split, {record['data']['sizes'][split]:,} examples", *metrics)
        rows = [(model_name(record), *(shown(name, value) for name, value in metrics.items()))]
        for other, found in record.get("baselines", {}).items():
            rows.append((other, *(shown(name, found.get(split, {}).get(name)) for name in metrics)))
        tables.append(table(header, rows))
    return "\n\n".join(tables)


def training(record: dict[str, Any]) -> str:
    """Where, how long and with which versions."""
    time, device = record["time"], record["device"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"{record['recipe']['max_steps']:,} optimizer steps in {time['training_wall_s']:.0f} s "
        f"({time['training_cpu_s']:.0f} s of CPU time) on {device['processes']} x {device['type']} ({device['name']}), "
        f"{device['threads']} thread(s) each. Versions: {versions}; commit {record['commit'] or 'unknown'}."
    )


def settings(recipe: dict[str, Any]) -> list[tuple[str, str]]:
    """The recipe's fields that the card does not show elsewhere; groups are spelt as on the command line."""
    rows: list[tuple[str, str]] = []
    for name, value in recipe.items():
        if isinstance(value, dict) and name not in ELSEWHERE:
            rows += [(f"{name}.{inner}", str(part)) for inner, part in value.items()]
        elif name not in ELSEWHERE and value is not None:
            rows.append((name, str(value)))
    return rows


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(name: str, value: float | None) -> str:
    """A metric for people: losses as they are, shares in percent."""
    if value is None:
        return ""
    return f"{value:.4f}" if name == "loss" else f"{100 * value:.2f} %"
