"""Make the YAML head of a card, which the Hub reads."""

from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from qkv.scripts.publishing.card.model import CardModel
from qkv.scripts.publishing.card.own_data import is_other_than_translation, is_own

TEXT_TO_TEXT = "text2text-generation"
RELATIONS = ("finetune", "quantized", "adapter", "merge")


def metadata(subject: CardModel, record: dict[str, Any] | None = None) -> ModelCardData:
    """Return the YAML head of a card; what there is no record of is left out."""
    record = record or {}
    task, base = record.get("task", {}), record.get("base_model")
    evaluations = results(record) if record else []
    own = [] if subject.native else ["custom_code"]
    told = task and not subject.predicts_contacts and not is_other_than_translation(record)
    said = record.get("recipe", {}).get("card", {})
    return ModelCardData(
        model_name=subject.name if evaluations else None,
        # Weights that come from elsewhere have the license of that, and those of own data what their owner says.
        license=said.get("license") or ("apache-2.0" if record and not base and not is_own(record) else None),
        library_name="transformers",
        pipeline_tag=task["kind"] if told else subject.task,
        tags=["qkv", subject.model_type, *own],
        language=languages(said.get("language", "")) or task.get("language"),
        datasets=[task["dataset"]] if "dataset" in task else None,
        metrics=sorted({result.metric_type for result in evaluations}) or None,
        eval_results=evaluations or None,
        base_model_relation=base["relation"] if base else None,
        base_model=base["id"] if base else None,
    )


def languages(said: str) -> list[str]:
    """Return the languages that a person named, such as "en, fr"."""
    return said.replace(",", " ").split()


def check_relation(base: dict[str, str]) -> None:
    """Raise ValueError unless a record names the base model, and a relation to it that the Hub knows."""
    if not base.get("id"):
        raise ValueError("the record's base_model lacks 'id', the name of a model on the Hub")
    if base.get("relation") not in RELATIONS:
        known = ", ".join(RELATIONS)
        raise ValueError(f"the record's base_model.relation={base.get('relation')!r} is not one of {known}")


def results(record: dict[str, Any]) -> list[EvalResult]:
    """Return every metric of every split but validation."""
    task = record["task"]
    kind = TEXT_TO_TEXT if is_other_than_translation(record) else task["kind"]
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
