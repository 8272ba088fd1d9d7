"""Programs that train a model, or a sentence encoder around it, as they train the stock one."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from client_models import installed, program, saved
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)

from qkv.modeling import QkvEncoderDecoderModel

PROGRAMS: list[models.Program] = []
enter = partial(program, PROGRAMS)
TEXTS = ["what is 1 + 2?", "three.", "a much longer text of many letters", "a."]
ENCODERS = dict.fromkeys(("bert", "llama", "t5"), AutoModel)


def sentence_encoder(model: PreTrainedModel, folder: Path, pooling: str) -> Any:
    """Of an encoder-decoder the encoder alone: of T5 by a table of the program, of ours by a class in `architectures`."""
    modules = installed("sentence_transformers.sentence_transformer.modules")
    alone = {"architectures": ["QkvEncoderDecoderEncoderModel"]} if isinstance(model, QkvEncoderDecoderModel) else {}
    read = modules.Transformer(str(saved(model, folder)), max_seq_length=32, config_kwargs=alone)
    pool = modules.Pooling(read.get_embedding_dimension(), pooling_mode=pooling)
    return installed("sentence_transformers").SentenceTransformer(modules=[read, pool], device="cpu")


def encoded(pooling: str, model: PreTrainedModel, folder: Path) -> Tensor:
    encoder = sentence_encoder(model, folder, pooling)
    together = encoder.encode(TEXTS, convert_to_tensor=True)
    alone = torch.stack([encoder.encode(text, convert_to_tensor=True) for text in TEXTS])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    encoder.save(str(folder / "again"))
    again = type(encoder)(str(folder / "again"), device="cpu")
    assert torch.equal(again.encode(TEXTS, convert_to_tensor=True), together)
    return together


for pooling in ("mean", "max", "cls", "lasttoken"):
    enter("sentence-transformers", f"embeddings, {pooling}", ENCODERS)(partial(encoded, pooling))


def contrasted(loss: str, model: PreTrainedModel, folder: Path) -> float:
    encoder, library = sentence_encoder(model, folder, "mean"), installed("sentence_transformers")
    arguments = library.SentenceTransformerTrainingArguments(
        str(folder / "out"), max_steps=2, per_device_train_batch_size=2, report_to="none", use_cpu=True, seed=0
    )
    pairs = installed("datasets").Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS[::-1]})
    own = getattr(installed("sentence_transformers.sentence_transformer.losses"), loss)(encoder)
    return library.SentenceTransformerTrainer(encoder, arguments, train_dataset=pairs, loss=own).train().training_loss


for loss in ("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"):
    enter("sentence-transformers", f"training, {loss}", ENCODERS)(partial(contrasted, loss))


@enter("sentence-transformers", "CrossEncoder", {"bert": AutoModelForSequenceClassification}, num_labels=1)
def rank(model: PreTrainedModel, folder: Path) -> Tensor:
    library = installed("sentence_transformers")
    ranker = library.CrossEncoder(str(saved(model, folder)), device="cpu", max_length=40)
    return ranker.predict([(TEXTS[0], text) for text in TEXTS], convert_to_tensor=True)


@enter("SetFit", "training from four examples", {"bert": AutoModel}, rtol=1e-3)
def train_from_few(model: PreTrainedModel, folder: Path) -> list[float]:
    setfit, texts = installed("setfit"), ["one + two", "three + four", "a dog", "a cat"]
    torch.manual_seed(0)
    classifier = setfit.SetFitModel.from_pretrained(str(saved(model, folder)))
    arguments = setfit.TrainingArguments(str(folder / "out"), max_steps=2, batch_size=2, report_to="none", seed=0)
    rows = installed("datasets").Dataset.from_dict({"text": texts, "label": [0, 0, 1, 1]})
    setfit.Trainer(model=classifier, args=arguments, train_dataset=rows).train()
    return torch.as_tensor(classifier.predict_proba(texts)).flatten().tolist()


HEADS = {"llama": AutoModelForCausalLM, "bert": AutoModelForSequenceClassification, "bart": AutoModelForSeq2SeqLM}


@enter("Lightning", "training, and from a checkpoint", HEADS, rtol=1e-3)
def train_in_a_module(model: PreTrainedModel, folder: Path) -> list[float]:
    """In evaluation mode, which Lightning keeps: nothing drops out."""
    lightning, ids = installed("lightning"), torch.arange(10, 42).view(8, 4)

    class Wrapped(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.losses = copy.deepcopy(model), []

        def training_step(self, batch: dict[str, Tensor]) -> Tensor:
            loss: Tensor = self.model(**batch).loss
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def trainer(epochs: int) -> Any:
        quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger", "enable_checkpointing"), False)
        return lightning.Trainer(max_epochs=epochs, accelerator="cpu", default_root_dir=folder, **quiet)

    labels = ids if model.can_generate() else torch.arange(8) % 2
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]
    batches = torch.utils.data.DataLoader(rows, batch_size=4)
    whole, first, again = Wrapped(), Wrapped(), Wrapped()
    trainer(2).fit(whole, batches)
    half = trainer(1)
    half.fit(first, batches)
    half.save_checkpoint(folder / "half.ckpt")
    trainer(2).fit(again, batches, ckpt_path=folder / "half.ckpt")
    assert again.losses == whole.losses[2:] and first.losses == whole.losses[:2]
    return whole.losses


@enter("optuna", "a search by Trainer", dict.fromkeys(("bert", "llama"), AutoModelForSequenceClassification), rtol=1e-3)
def search(model: PreTrainedModel, folder: Path) -> list[float]:
    rows = [{"input_ids": [10 + number, 11, 12 + number], "labels": number % 2} for number in range(8)]
    settings = {"per_device_train_batch_size": 4, "max_steps": 3, "seed": 0, "save_strategy": "no"}
    arguments = TrainingArguments(str(folder), use_cpu=True, report_to="none", disable_tqdm=True, **settings)
    best = Trainer(
        model_init=lambda: copy.deepcopy(model), args=arguments, train_dataset=rows, eval_dataset=rows
    ).hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True)},
        compute_objective=lambda metrics: metrics["eval_loss"],
        n_trials=3,
        sampler=installed("optuna").samplers.RandomSampler(seed=0),
    )
    return [best.objective, best.hyperparameters["learning_rate"]]


@pytest.mark.parametrize("each", PROGRAMS, ids=str)
def test_program(each: models.Program, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    models.run(each, tmp_path, side_by_side)
