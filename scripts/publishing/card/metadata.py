"""Make the YAML head of a card, which the Hub reads."""

from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from qkv.scripts.publishing.card.model import CardModel
from qkv.scripts.publishing.card.own_data import is_other_than_translation, is_own


def metadata(subject: CardModel, record: dict[str, Any] | None = None) -> ModelCardData:
    """Return the YAML head of a card; unrecorded facts are left out."""
    record = record or {}
    task, base = record.get("task", {}), record.get("base_model")
    evaluations = results(record) if record else []
    is_told = task and not subject.architecture.endswith("ForContactPrediction")
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
