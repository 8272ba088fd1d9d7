"""transformers' Trainer with programs of others: a search by optuna, and examples packed in a row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DataCollatorWithFlattening,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)

pytest.importorskip("optuna", reason="`make clients` installs it", exc_type=ImportError)
ROWS = [{"input_ids": [10 + number, 11, 12 + number], "labels": number % 2} for number in range(8)]
TEXTS = [{"input_ids": list(range(10, 13 + number))} for number in range(4)]


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    settings = {"report_to": "none", "seed": 0, "per_device_train_batch_size": 4, "max_steps": 3, **options}
    return TrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, save_strategy="no", **settings)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_search_by_optuna(kind: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    import optuna

    def search(model: PreTrainedModel) -> list[float]:
        state = {name: value.clone() for name, value in model.state_dict().items()}

        def start() -> PreTrainedModel:
            model.load_state_dict(state)
            return model

        trainer = Trainer(
            model_init=start, args=arguments(tmp_path), train_dataset=ROWS, eval_dataset=ROWS,
        )  # fmt: skip
        best = trainer.hyperparameter_search(
            hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True)},
            compute_objective=lambda metrics: metrics["eval_loss"],
            n_trials=3,
            backend="optuna",
            sampler=optuna.samplers.RandomSampler(seed=0),
        )
        return [best.objective, best.hyperparameters["learning_rate"]]

    both = models.both(kind, AutoModelForSequenceClassification)
    side_by_side("optuna", "a search by Trainer", search, *both, rtol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gpt2"])
def test_examples_packed_in_a_row(kind: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    def train(model: PreTrainedModel) -> list[float]:
        collate = DataCollatorWithFlattening()
        trainer = Trainer(
            model, arguments(tmp_path, logging_steps=1), train_dataset=TEXTS, data_collator=collate, eval_dataset=TEXTS
        )
        before = trainer.evaluate()["eval_loss"]
        alone = [model(**one_row(text), use_cache=False).loss for text in TEXTS]
        sizes = torch.tensor([len(text["input_ids"]) - 1 for text in TEXTS])
        together = (torch.stack(alone).detach() * sizes).sum() / sizes.sum()
        trainer.train()
        return [before, together.item(), *(row["loss"] for row in trainer.state.log_history if "loss" in row)]

    def one_row(text: dict[str, list[int]]) -> dict[str, torch.Tensor]:
        ids = torch.tensor([text["input_ids"]])
        return {"input_ids": ids, "labels": ids}

    side_by_side("Trainer", "DataCollatorWithFlattening", train, *models.both(kind, AutoModelForCausalLM), rtol=1e-3)
