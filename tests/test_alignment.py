"""The attention of a recurrent network that reverses a text learns the anti-diagonal alignment."""

import pytest
import torch

from qkv.scripts.recipes import loading as recipe
from qkv.scripts.training.run import Run, train

WORDS = ["data=reverse", "text.tokenizer=characters", "text.symbols=6", "text.made=3000", "text.evaluated=50",
         "model.hidden_size=48", "model.embedding_size=24", "model.encoder_hidden_size=24", "model.attention_size=48",
         "model.initializer_range=0.1", "batch_size=64", "max_steps=400", "warmup_steps=40"]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "reverse"
    return train(recipe.load("translate-recurrent", [*WORDS, f"out={out}"]), "qkv train translate-recurrent")


def mismatches(weights: torch.Tensor, lengths: torch.Tensor) -> int:
    """Count the targets whose heaviest source (B, T, S) is not the mirrored position."""
    due = torch.arange(weights.shape[1]) < lengths[:, None]
    wanted = lengths[:, None] - 1 - torch.arange(weights.shape[1])
    return int(((weights.argmax(-1) != wanted) & due).sum())


@pytest.mark.slow
def test_the_alignment_of_a_reversal_is_the_anti_diagonal(trained: Run) -> None:
    batch = trained.task.collate(trained.task.splits["test"].__getitems__(range(50)), None)
    given = {name: value for name, value in batch.items() if name[0] != "_"}
    with torch.no_grad():
        (weights,) = trained.model(**given, output_attentions=True).cross_attentions
    lengths = batch["attention_mask"].sum(1) - 1  # without the end of the text
    assert trained.record["metrics"]["test"]["exact_match"] > 0.95
    assert mismatches(weights[:, 0], lengths) == 0
    assert mismatches(weights[:, 0].flip(-1), lengths) > 0.5 * lengths.sum()
    untrained = type(trained.model)(trained.model.config).eval()
    with torch.no_grad():
        (before,) = untrained(**given, output_attentions=True).cross_attentions
    assert mismatches(before[:, 0], lengths) > 0.5 * lengths.sum()
