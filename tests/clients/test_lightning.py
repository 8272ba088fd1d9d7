"""Lightning trains a model inside a module of its own, and goes on from its checkpoint."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

lightning = pytest.importorskip("lightning", reason="`make clients` installs it", exc_type=ImportError)
HEADS = {"llama": AutoModelForCausalLM, "bert": AutoModelForSequenceClassification, "bart": AutoModelForSeq2SeqLM}
IDS = torch.arange(10, 42).view(8, 4)


class Wrapped(lightning.LightningModule):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model, self.losses = model, []

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        loss: Tensor = self.model(**batch).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def rows(kind: str) -> list[dict[str, Tensor]]:
    labels = torch.arange(8) % 2 if kind == "bert" else IDS
    return [{"input_ids": ids, "labels": label} for ids, label in zip(IDS, labels, strict=True)]


def trainer(epochs: int, folder: Path) -> Any:
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        "enable_checkpointing": False,
    }
    return lightning.Trainer(max_epochs=epochs, accelerator="cpu", default_root_dir=folder, **quiet)


@pytest.mark.parametrize("kind", HEADS)
def test_training_and_going_on(kind: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    # In evaluation mode, which Lightning keeps: nothing drops out.
    def train(model: PreTrainedModel) -> list[float]:
        batches = torch.utils.data.DataLoader(rows(kind), batch_size=4)
        whole, first = (Wrapped(copy.deepcopy(model)) for _ in range(2))
        trainer(2, tmp_path).fit(whole, batches)
        half = trainer(1, tmp_path)
        half.fit(first, batches)
        half.save_checkpoint(tmp_path / "half.ckpt")
        again = Wrapped(copy.deepcopy(model))
        trainer(2, tmp_path).fit(again, batches, ckpt_path=tmp_path / "half.ckpt")
        assert again.losses == whole.losses[2:] and first.losses == whole.losses[:2]
        return whole.losses

    side_by_side("Lightning", "training, and from a checkpoint", train, *models.both(kind, HEADS[kind]), rtol=1e-3)
