"""TRL trains a decoder as it trains the stock one: fine-tuning, packing, preferences, rewards, policies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel

import tiny
from qkv import QkvDecoderForCausalLM

trl = pytest.importorskip("trl", reason="`make clients` installs it", exc_type=ImportError)
datasets = pytest.importorskip("datasets")

TEXTS = [f"what is {a} + {b}? {a + b}." for a in range(4) for b in range(4)]
PAIRS = [{"prompt": text[:-3], "chosen": text[-3:], "rejected": "no."} for text in TEXTS]
KINDS = ("llama", "mistral")  # stock GPT-2 logs another loss than its own
COMMON = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "report_to": "none",
    "use_cpu": True,
    "seed": 0,
    "bf16": False,
}


def decoder(kind: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    return models.both(kind, AutoModelForCausalLM)


def settings(config_class: Any, folder: Path, **options: Any) -> Any:
    return config_class(str(folder), **{**COMMON, "save_strategy": "no", **options})


def trained(trainer_class: Any, rows: list[dict[str, Any]], arguments: Any, **options: Any) -> Callable[[Any], float]:
    """The loss of a short training of a copy."""

    def train(model: PreTrainedModel) -> float:
        # Loaded, for a reference model is loaded from where the model is from.
        folder = Path(arguments.output_dir) / type(model).__name__
        model.save_pretrained(folder)
        loaded = type(model).from_pretrained(folder)
        torch.manual_seed(0)
        data = datasets.Dataset.from_list(rows)
        given = {"args": arguments, "train_dataset": data, "processing_class": models.tokenizer(), **options}
        return trainer_class(loaded, **given).train().training_loss

    return train


SFT = {
    "plain": {},
    "packed": {"packing": True, "max_length": 24},
    "packed by cutting": {"packing": True, "packing_strategy": "wrapped", "max_length": 24},
    "without padding": {"padding_free": True, "max_length": None},
    "the loss of completions": {"completion_only_loss": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "loss in chunks": {"loss_type": "chunked_nll"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", SFT)
def test_fine_tuning(kind: str, way: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    rows = [
        {"prompt": text[:-3], "completion": text[-3:]} if "completions" in way else {"text": text} for text in TEXTS
    ]
    train = trained(trl.SFTTrainer, rows, settings(trl.SFTConfig, tmp_path, **SFT[way]))
    side_by_side("TRL", f"SFT, {way}", train, *decoder(kind))


def test_fine_tuning_of_scaled_logits_has_the_loss_of_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    scaled = tiny.jitter(
        QkvDecoderForCausalLM(tiny.decoder("llama", scale_logits=True, **dict.fromkeys(tiny.DROPOUT, 0.0)))
    ).eval()
    rows = [{"text": text} for text in TEXTS[:4]]
    own = models.tokenizer()([text + "</s>" for text in TEXTS[:4]], return_tensors="pt", padding=True)
    labels = own["input_ids"].masked_fill(own["attention_mask"] == 0, -100)
    expected = scaled(own["input_ids"], attention_mask=own["attention_mask"], labels=labels).loss.item()
    for loss_type in ("nll", "chunked_nll"):
        arguments = settings(trl.SFTConfig, tmp_path, max_steps=1, loss_type=loss_type)
        assert trained(trl.SFTTrainer, rows, arguments)(scaled) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("way", "options"), [("DPO", {}), ("DPO, without padding", SFT["without padding"])])
def test_preferences(
    kind: str, way: str, options: dict[str, Any], tmp_path: Path, side_by_side: Callable[..., None]
) -> None:
    arguments = settings(trl.DPOConfig, tmp_path, **options)
    side_by_side("TRL", way, trained(trl.DPOTrainer, PAIRS, arguments), *decoder(kind))


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_rewards(kind: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    given = models.both(kind, AutoModelForSequenceClassification, num_labels=1)
    side_by_side("TRL", "Reward", trained(trl.RewardTrainer, PAIRS, settings(trl.RewardConfig, tmp_path)), *given)


@pytest.mark.parametrize("kind", KINDS)
def test_policies(kind: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    options = {"num_generations": 4, "max_completion_length": 6, "beta": 0.1, "temperature": 1.0}
    arguments = settings(trl.GRPOConfig, tmp_path, **options)

    def reward(completions: list[str], **kwargs: Any) -> list[float]:
        return [float(text.count("e")) for text in completions]

    train = trained(trl.GRPOTrainer, PAIRS, arguments, reward_funcs=reward)
    side_by_side("TRL", "GRPO", train, *decoder(kind))
