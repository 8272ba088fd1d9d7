"""How well does each write, by the length of what it has read? All learn for the same CPU seconds, in turns."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.history.contenders import reversals
from qkv.scripts.training.loop import parameter_groups

WARMUP = 0.05
# Losses of the record: means over that many equal shares of the time.
SHARES = 20


@dataclass(frozen=True)
class Lessons:
    """What is learned: `seconds` of CPU time, at each step about `letters` letters in texts of one of the `lengths`."""

    seconds: float
    lengths: Sequence[int]
    letters: int
    rate: float
    seed: int

    @property
    def first_seed(self) -> int:
        """That of the first step's texts, each step's being the next; those of exams are lower."""
        return (self.seed + 1) * 1_000_003

    def batch(self, step: int) -> dict[str, Tensor]:
        """The texts of a step, fresh ones each time and the same for whoever takes it."""
        random = torch.Generator().manual_seed(self.first_seed + step)
        length = self.lengths[int(torch.randint(len(self.lengths), (), generator=random))]
        return reversals(max(self.letters // length, 1), length, random)


@dataclass
class Learner:
    """A model in training, whose learning rate follows the share of its time that is spent: it warms up, then decays.

    Steps are of one length each, so that nothing is padded.
    """

    model: PreTrainedModel
    lessons: Lessons
    optimizer: Any = field(init=False)
    spent: float = 0.0
    steps: int = 0
    letters: int = 0
    losses: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        groups = parameter_groups(self.model, 0.01)
        self.optimizer = torch.optim.AdamW(groups, lr=self.lessons.rate, fused=True)

    def rate(self) -> float:
        """The learning rate now."""
        share = min(self.spent / self.lessons.seconds, 1.0)
        return self.lessons.rate * min(share / WARMUP, (1 + math.cos(math.pi * share)) / 2)

    def learn(self) -> None:
        """One optimizer step."""
        began = time.process_time()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        batch = self.lessons.batch(self.steps)
        loss = self.model(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append((self.spent, loss.item()))
        self.steps += 1
        self.letters += batch["labels"].numel()
        self.spent += time.process_time() - began

    def summary(self) -> dict[str, Any]:
        """What it took, and its mean loss in each share of the time: the second at its end, and the loss."""
        shares: dict[int, list[float]] = {}
        for second, loss in self.losses:
            shares.setdefault(min(int(SHARES * second / self.lessons.seconds), SHARES - 1), []).append(loss)
        curve = [[(share + 1) * self.lessons.seconds / SHARES, sum(each) / len(each)] for share, each in shares.items()]
        return {"cpu_s": self.spent, "steps": self.steps, "letters": self.letters, "curve": curve}


def teach(models: Mapping[str, PreTrainedModel], lessons: Lessons) -> dict[str, dict[str, Any]]:
    """Train all for the same CPU seconds: who has had the least is next, so that all meet the machine's same moods."""
    learners = {name: Learner(model.train(), lessons) for name, model in models.items()}
    while (least := min(learners.values(), key=lambda learner: learner.spent)).spent < lessons.seconds:
        least.learn()
    return {name: learner.summary() for name, learner in learners.items()}


@torch.no_grad()
def examine(model: PreTrainedModel, length: int, letters: int, seed: int) -> float:
    """The share of letters that are right in their places when the model writes as many as there are, by itself.

    Texts are those of no lesson. What it writes is its likeliest letter each time, its own mistakes before it.
    """
    batch = reversals(max(letters // length, 1), length, torch.Generator().manual_seed(seed))
    written = model.eval().generate(
        batch["input_ids"], attention_mask=torch.ones_like(batch["input_ids"]), do_sample=False, num_beams=1,
        min_new_tokens=length, max_new_tokens=length,
    )  # fmt: skip
    return (written[:, -length:] == batch["labels"][:, :length]).double().mean().item()
