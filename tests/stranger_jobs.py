"""What somebody without qkv makes of a model on the Hub: the reader's side of `test_push_to_hub.py`."""

import copy
import sys
from typing import Any

import torch
from transformers import AutoModel, AutoModelForMaskedLM, pipeline

from client import main, named, refusal

SENTENCE = "the cat sat on the [MASK]"
IDS = [[3, 4, 5, 6, 3, 2]]
WITH_CODE = ("pushed", "saved", "end", "every_save", "checkpoint")


@torch.no_grad()
def logits() -> Any:
    """Of each repository, and where the model's class came from."""
    found = {}
    for label in WITH_CODE:
        loaded = AutoModelForMaskedLM.from_pretrained(named(label), trust_remote_code=True)
        home = type(loaded).__module__.partition(".")[0]
        found[label] = {"home": home, "logits": copy.deepcopy(loaded).eval()(torch.tensor(IDS)).logits.tolist()}
    return found


def task() -> Any:
    pipe = pipeline("fill-mask", model=named("pushed"), trust_remote_code=True)
    return [answer["token_str"] for answer in pipe(SENTENCE)]


def pushed_on() -> Any:
    """The stranger pushes what was loaded, and loads it again."""
    target = named("passed_on")
    AutoModelForMaskedLM.from_pretrained(named("pushed"), trust_remote_code=True).push_to_hub(target, private=True)
    again = AutoModelForMaskedLM.from_pretrained(target, trust_remote_code=True)
    body = AutoModel.from_pretrained(target, trust_remote_code=True)
    with torch.no_grad():
        answer = copy.deepcopy(again).eval()(torch.tensor(IDS)).logits.tolist()
    return {"logits": answer, "body": type(body).__name__}


def without_code() -> Any:
    return refusal(AutoModelForMaskedLM.from_pretrained, named("bare"), trust_remote_code=True)


JOBS = {job.__name__: job for job in (logits, task, pushed_on, without_code)}

if __name__ == "__main__":
    # As if it were not installed.
    sys.modules["qkv"] = None  # type: ignore[assignment]
    main(JOBS)
