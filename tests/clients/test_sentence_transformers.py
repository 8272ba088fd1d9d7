"""sentence-transformers encodes, trains and ranks with a model of ours as with the stock one.

Of an encoder-decoder both run the encoder alone, of T5 by a table of sentence-transformers, of ours by its class in
`architectures`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedModel

from qkv.modeling import QkvEncoderDecoderModel

sentence_transformers = pytest.importorskip("sentence_transformers", reason="`make clients`", exc_type=ImportError)
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules", exc_type=ImportError)
losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses", exc_type=ImportError)
datasets = pytest.importorskip("datasets")
TEXTS = ["what is 1 + 2?", "three.", "a much longer text of many letters", "a."]
ENCODERS = ("bert", "llama", "t5")


def saved(model: PreTrainedModel, folder: Path) -> str:
    path = folder / type(model).__name__
    model.save_pretrained(path)
    models.tokenizer().save_pretrained(path)
    return str(path)


def sentence_encoder(model: PreTrainedModel, folder: Path, pooling: str) -> Any:
    alone = {"architectures": ["QkvEncoderDecoderEncoderModel"]} if isinstance(model, QkvEncoderDecoderModel) else {}
    read = modules.Transformer(saved(model, folder), max_seq_length=32, config_kwargs=alone)
    width = read.get_embedding_dimension()
    pool = modules.Pooling(width, pooling_mode=pooling)
    return sentence_transformers.SentenceTransformer(modules=[read, pool], device="cpu")


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "lasttoken"])
def test_embeddings(kind: str, pooling: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    def encode(model: PreTrainedModel) -> Tensor:
        encoder = sentence_encoder(model, tmp_path, pooling)
        together = encoder.encode(TEXTS, convert_to_tensor=True)
        alone = torch.stack([encoder.encode(text, convert_to_tensor=True) for text in TEXTS])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
        encoder.save(str(tmp_path / "again"))
        again = sentence_transformers.SentenceTransformer(str(tmp_path / "again"), device="cpu")
        assert torch.equal(again.encode(TEXTS, convert_to_tensor=True), together)
        return together

    side_by_side("sentence-transformers", f"embeddings, {pooling}", encode, *models.both(kind, AutoModel))


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("loss", ["MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"])
def test_training(kind: str, loss: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    def train(model: PreTrainedModel) -> float:
        encoder = sentence_encoder(model, tmp_path, "mean")
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, report_to="none", use_cpu=True, seed=0
        )
        pairs = datasets.Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS[::-1]})
        trainer = sentence_transformers.SentenceTransformerTrainer(
            encoder, arguments, train_dataset=pairs, loss=getattr(losses, loss)(encoder)
        )
        return trainer.train().training_loss

    side_by_side("sentence-transformers", f"training, {loss}", train, *models.both(kind, AutoModel))


def test_cross_encoder(tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    def rank(model: PreTrainedModel) -> Tensor:
        ranker = sentence_transformers.CrossEncoder(saved(model, tmp_path), device="cpu", max_length=40)
        return ranker.predict([(TEXTS[0], text) for text in TEXTS], convert_to_tensor=True)

    given = models.both("bert", AutoModelForSequenceClassification, num_labels=1)
    side_by_side("sentence-transformers", "CrossEncoder", rank, *given)
