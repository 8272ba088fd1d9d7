"""Load and run models from the Hub without qkv: the reader's side of `test_author.py`."""

import copy
from typing import Any

import torch
import transformers

SENTENCE = "the cat sat on the [MASK]"
IDS = torch.tensor([[3, 4, 5, 6, 3, 2]])


@torch.no_grad()
def logits(model: Any) -> Any:
    """Copied first: where weights lie in memory decides the last bits."""
    return copy.deepcopy(model).eval()(input_ids=IDS).logits.tolist()


def load(label: str) -> Any:
    return transformers.AutoModelForMaskedLM.from_pretrained(f"alice/{label}", trust_remote_code=True)


def numbers() -> Any:
    """Of each repository the logits, and where the model's class came from."""
    models = {label: load(label) for label in ("pushed", "saved", "checkpoint")}
    return {label: [type(model).__module__.partition(".")[0], logits(model)] for label, model in models.items()}


def task() -> Any:
    pipe = transformers.pipeline("fill-mask", model="alice/pushed", trust_remote_code=True)
    return [answer["token_str"] for answer in pipe(SENTENCE)]


def passed_on() -> Any:
    """The reader pushes what was loaded, and loads it again."""
    load("pushed").push_to_hub("alice/passed_on", private=True)
    return logits(load("passed_on"))
