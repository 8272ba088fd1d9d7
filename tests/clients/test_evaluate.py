"""evaluate's evaluators: a pipeline over a data set, and a metric of what it predicts."""

from collections.abc import Callable
from typing import Any

import client_models as models
import pytest
from transformers import AutoModelForSequenceClassification, PreTrainedModel, pipeline

evaluate = pytest.importorskip("evaluate", reason="`make clients` installs it", exc_type=ImportError)
datasets = pytest.importorskip("datasets")

TEXTS = ["one", "a dog", "what is 1 + 2?", "three.", "zebra", "x"]
LABELS = {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}


class Agreement(evaluate.Metric):
    """Share of predictions that are the references; those of evaluate itself are on the Hub."""

    def _info(self) -> Any:
        features = datasets.Features({name: datasets.Value("int64") for name in ("predictions", "references")})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, Any]:
        pairs = zip(predictions, references, strict=True)
        share = sum(found == expected for found, expected in pairs) / len(references)
        return {"agreement": share, "predictions": predictions}


@pytest.mark.parametrize("kind", ["bert", "llama"])
@pytest.mark.parametrize("given", ["a model", "a pipeline"])
def test_classification(kind: str, given: str, side_by_side: Callable[..., None]) -> None:
    """Given a pipeline, it asks transformers for classes of TensorFlow that are no more."""

    def evaluated(model: PreTrainedModel) -> list[float]:
        tokenizer = models.tokenizer()
        predict = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
        own = [LABELS[answer["label"]] for answer in predict(TEXTS)]
        assert len(set(own)) > 1
        rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [own[0]] * len(own)})
        options = {"tokenizer": tokenizer} if given == "a model" else {}
        found = evaluate.evaluator("text-classification").compute(
            model if given == "a model" else predict,
            data=rows,
            metric=Agreement(),
            label_mapping=LABELS,
            **options,
        )
        assert found["predictions"] == own and found["agreement"] == own.count(own[0]) / len(own)
        return own

    both = models.both(kind, AutoModelForSequenceClassification, num_labels=3)
    side_by_side("evaluate", f"text-classification, given {given}", evaluated, *both, refusable=given == "a pipeline")
