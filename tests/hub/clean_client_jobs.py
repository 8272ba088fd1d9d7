"""Load and run models from the Hub without qkv: the reader's side of `test_push_to_hub.py`."""

import copy
import sys
from typing import Any

import torch
import transformers

from client import main, named

SENTENCE = "the cat sat on the [MASK]"
IDS = torch.tensor([[3, 4, 5, 6, 3, 2]])
ENCODERS = ("pushed", "saved", "checkpoint")


@torch.no_grad()
def logits(model: Any) -> Any:
    """Copied first: where weights lie in memory decides the last bits."""
    return copy.deepcopy(model).eval()(input_ids=IDS).logits.tolist()


def load(label: str) -> Any:
    return transformers.AutoModelForMaskedLM.from_pretrained(named(label), trust_remote_code=True)


def numbers() -> Any:
    """Of each repository the logits, and where the model's class came from."""
    found = {}
    for label in ENCODERS:
        model = load(label)
        home = type(model).__module__.partition(".")[0]
        body = transformers.AutoModel.from_pretrained(named(label), trust_remote_code=True)
        found[label] = {"home": home, "logits": logits(model), "body": type(body).__name__}
    return found


def task() -> Any:
    pipe = transformers.pipeline("fill-mask", model=named("pushed"), trust_remote_code=True)
    return [answer["token_str"] for answer in pipe(SENTENCE)]


def passed_on() -> Any:
    """The reader pushes what was loaded, and loads it again."""
    load("pushed").push_to_hub(named("passed_on"), private=True)
    return logits(load("passed_on"))


JOBS = {job.__name__: job for job in (numbers, task, passed_on)}

if __name__ == "__main__":
    # As if it were not installed.
    sys.modules["qkv"] = None  # type: ignore[assignment]
    main(JOBS)
