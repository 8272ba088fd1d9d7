"""Train all models for the same CPU seconds, in turns, and measure their accuracy by source length."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.lab.history.models import reversals
from qkv.scripts.training.loop import parameter_groups

WARMUP = 0.05
# Points of the loss curve in the record: means over that many equal shares of the time.
POINTS = 20


@dataclass(frozen=True)
class Curriculum:
    """Training for `seconds` of CPU time, each step on about `tokens` letters in sources of one of the `lengths`."""

    seconds: float
    lengths: Sequence[int]
    tokens: int
    learning_rate: float
    seed: int

    @property
    def first_seed(self) -> int:
        """The seed of the first step's sources, followed by those of the next; those of the test are lower."""
        return (self.seed + 1) * 1_000_003

    def batch(self, step: int) -> dict[str, Tensor]:
        """Return the sources of a step, new ones each time and the same for all models."""
        random = torch.Generator().manual_seed(self.first_seed + step)
        length = self.lengths[int(torch.randint(len(self.lengths), (), generator=random))]
        return reversals(max(self.tokens // length, 1), length, random)


@dataclass
class TimedTraining:
    """The training of a model, whose learning rate warms up and decays with the share of its time that is spent.

    The sources of a step have one length, so that nothing is padded.
    """

    model: PreTrainedModel
    curriculum: Curriculum
    optimizer: Any = field(init=False)
    spent: float = 0.0
    steps: int = 0
    tokens: int = 0
    losses: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        groups = parameter_groups(self.model, 0.01)
        self.optimizer = torch.optim.AdamW(groups, lr=self.curriculum.learning_rate, fused=True)

    def learning_rate(self) -> float:
        """Return the learning rate now."""
        share = min(self.spent / self.curriculum.seconds, 1.0)
        return self.curriculum.learning_rate * min(share / WARMUP, (1 + math.cos(math.pi * share)) / 2)

    def step(self) -> None:
        """Take an optimizer step."""
        began = time.process_time()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        batch = self.curriculum.batch(self.steps)
        loss = self.model(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append((self.spent, loss.item()))
        self.steps += 1
        self.tokens += batch["labels"].numel()
        self.spent += time.process_time() - began

    def summary(self) -> dict[str, Any]:
        """Return its cost, and its loss curve: the mean loss of each share of the time, by the second of its end."""
        seconds = self.curriculum.seconds
        shares: dict[int, list[float]] = {}
        for second, loss in self.losses:
            shares.setdefault(min(int(POINTS * second / seconds), POINTS - 1), []).append(loss)
        curve = [[(share + 1) * seconds / POINTS, sum(losses) / len(losses)] for share, losses in shares.items()]
        return {"cpu_s": self.spent, "steps": self.steps, "tokens": self.tokens, "curve": curve}


def train_in_turns(models: Mapping[str, PreTrainedModel], curriculum: Curriculum) -> dict[str, dict[str, Any]]:
    """Train all models for the same CPU seconds, always the one that has had the least."""
    trainings = {name: TimedTraining(model.train(), curriculum) for name, model in models.items()}
    while (least := min(trainings.values(), key=lambda training: training.spent)).spent < curriculum.seconds:
        least.step()
    return {name: training.summary() for name, training in trainings.items()}


@torch.no_grad()
def accuracy(model: PreTrainedModel, length: int, tokens: int, seed: int) -> float:
    """Return the share of correct letters of greedy decoding, on sources that were not trained on."""
    batch = reversals(max(tokens // length, 1), length, torch.Generator().manual_seed(seed))
    generated = model.eval().generate(
        batch["input_ids"], attention_mask=torch.ones_like(batch["input_ids"]), do_sample=False, num_beams=1,
        min_new_tokens=length, max_new_tokens=length,
    )  # fmt: skip
    return (generated[:, -length:] == batch["labels"][:, :length]).double().mean().item()
