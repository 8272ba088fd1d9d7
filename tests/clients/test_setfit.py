"""SetFit trains a sentence encoder and its classifier from a few examples."""

from collections.abc import Callable
from pathlib import Path

import client_models as models
import pytest
import torch
from transformers import AutoModel, PreTrainedModel

setfit = pytest.importorskip("setfit", reason="`make clients` installs it", exc_type=ImportError)
datasets = pytest.importorskip("datasets")
TEXTS = ["one + two", "three + four", "a dog", "a cat"]


def test_a_few_examples(tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    def train(model: PreTrainedModel) -> list[float]:
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        models.tokenizer().save_pretrained(folder)
        torch.manual_seed(0)
        classifier = setfit.SetFitModel.from_pretrained(str(folder))
        arguments = setfit.TrainingArguments(str(tmp_path / "out"), max_steps=2, batch_size=2, report_to="none", seed=0)
        rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 0, 1, 1]})
        setfit.Trainer(model=classifier, args=arguments, train_dataset=rows).train()
        return torch.as_tensor(classifier.predict_proba(TEXTS)).flatten().tolist()

    side_by_side("SetFit", "training from four examples", train, *models.both("bert", AutoModel), rtol=1e-3)
