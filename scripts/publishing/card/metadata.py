"""Make what the Hub reads: the YAML head of a card, and results for the leaderboards of registered benchmarks."""

from dataclasses import dataclass
from typing import Any

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml

from qkv.scripts.publishing.card.model import CardModel

RELATIONS = ("finetune", "quantized", "adapter", "merge")


@dataclass(frozen=True)
class Benchmark:
    """A dataset of the Hub that ranks models by one of our metrics, its name for the task, and its value for 1."""

    dataset: str
    task: str
    scale: float = 100.0


# (task, split, metric) of ours -> one of https://huggingface.co/datasets?benchmark=benchmark%3Aofficial. A recipe whose
# data is one of those adds its row here; scikit-learn's digits are none.
BENCHMARKS: dict[tuple[str, str, str], Benchmark] = {}


def metadata(subject: CardModel, record: dict[str, Any] | None = None) -> ModelCardData:
    """Return the YAML head of a card; what there is no record of is left out."""
    record = record or {}
    task, base = record.get("task", {}), record.get("base_model")
    evaluations = results(record) if record else []
    own = [] if subject.native else ["custom_code"]
    return ModelCardData(
        model_name=subject.name if evaluations else None,
        # Weights that come from elsewhere have the license of that.
        license="apache-2.0" if record and not base else None,
        library_name="transformers",
        pipeline_tag=task.get("kind", subject.task),
        tags=["qkv", subject.model_type, *own],
        language=task.get("language"),
        datasets=[task["dataset"]] if "dataset" in task else None,
        metrics=sorted({result.metric_type for result in evaluations}) or None,
        eval_results=evaluations or None,
        base_model_relation=base["relation"] if base else None,
        base_model=base["id"] if base else None,
    )


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
    return [
        EvalResult(
            task_type=task["kind"],
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


def leaderboard_files(record: dict[str, Any]) -> dict[str, str]:
    """Return {path: text} of `.eval_results/*.yaml` for every benchmark that the record has a result of."""
    files = {}
    for split, metrics in record["metrics"].items():
        for metric, value in metrics.items():
            if benchmark := BENCHMARKS.get((record["task"]["name"], split, metric)):
                score = round(value * benchmark.scale, 2)
                entry = EvalResultEntry(dataset_id=benchmark.dataset, task_id=benchmark.task, value=score)
                name = f"{benchmark.dataset.partition('/')[2]}-{benchmark.task}".lower()
                files[f".eval_results/{name}.yaml"] = yaml.safe_dump(
                    eval_result_entries_to_yaml([entry]), sort_keys=False
                )
    return files
