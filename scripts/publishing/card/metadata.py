"""What does the Hub read? The YAML head of a card, and results for the leaderboards of registered benchmarks."""

from dataclasses import dataclass
from typing import Any

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml

from qkv.scripts.publishing.card.subject import Subject

RELATIONS = ("finetune", "quantized", "adapter", "merge")


@dataclass(frozen=True)
class Benchmark:
    """A dataset of the Hub that ranks models by a result of ours, its name for the task, and what it counts 1 as."""

    dataset: str
    task: str
    scale: float = 100.0


# (task, split, metric) of ours -> one of https://huggingface.co/datasets?benchmark=benchmark%3Aofficial. A recipe whose
# data is one of those adds its row here; scikit-learn's digits are none.
BENCHMARKS: dict[tuple[str, str, str], Benchmark] = {}


def metadata(subject: Subject, record: dict[str, Any] | None = None) -> ModelCardData:
    """The YAML head of a card; what there is no record of is left out."""
    record = record or {}
    task, base = record.get("task", {}), record.get("base_model")
    found = results(record) if record else []
    own = [] if subject.native else ["custom_code"]
    return ModelCardData(
        model_name=subject.name if found else None,
        # Weights that come from elsewhere have the license of that.
        license="apache-2.0" if record and not base else None,
        library_name="transformers",
        pipeline_tag=task.get("kind", subject.head.tag),
        tags=["qkv", subject.model_type, *own],
        language=task.get("language"),
        datasets=[task["dataset"]] if "dataset" in task else None,
        metrics=sorted({result.metric_type for result in found}) or None,
        eval_results=found or None,
        base_model_relation=base["relation"] if base else None,
        base_model=base["id"] if base else None,
    )


def refuse_unknown_relation(base: dict[str, str]) -> None:
    """Raise ValueError unless a record says which model this one was made from, and how, in a word the Hub knows."""
    if not base.get("id"):
        raise ValueError("the record's base_model lacks 'id', the name of a model on the Hub")
    if base.get("relation") not in RELATIONS:
        known = ", ".join(RELATIONS)
        raise ValueError(f"the record's base_model.relation={base.get('relation')!r} is not one of {known}")


def results(record: dict[str, Any]) -> list[EvalResult]:
    """Every metric of every split that others have too."""
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
        # Nobody else has the split that was watched in training.
        if metric != "loss" and split != "validation"
    ]


def leaderboard_files(record: dict[str, Any]) -> dict[str, str]:
    """`.eval_results/*.yaml`, by path, for every benchmark that the record has a result of."""
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
