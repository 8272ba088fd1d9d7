"""Load and run models from the Hub without qkv: the reader's side of `test_push_to_hub.py`."""

import copy
import sys
from typing import Any

import torch
import transformers
from torch import Tensor

from client import main, named, refusal

SENTENCE = "the cat sat on the [MASK]"
IDS = torch.tensor([[3, 4, 5, 6, 3, 2]])
# {repository: its Auto class, beside AutoModel}
FAMILIES = {
    "decoder": "AutoModelForCausalLM",
    "encoder_decoder": "AutoModelForSeq2SeqLM",
    "vision": "AutoModelForImageClassification",
}
ENCODERS = ("pushed", "saved", "end", "every_save", "checkpoint")


def inputs(label: str) -> dict[str, Tensor]:
    if label == "vision":
        return {"pixel_values": torch.linspace(-1, 1, 3 * 8 * 8).view(1, 3, 8, 8)}
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS} if label == "encoder_decoder" else {})


@torch.no_grad()
def logits(model: Any, label: str = "encoder") -> Any:
    """Copied first: where weights lie in memory decides the last bits."""
    return copy.deepcopy(model).eval()(**inputs(label)).logits.tolist()


def load(label: str) -> Any:
    auto_class = getattr(transformers, FAMILIES.get(label, "AutoModelForMaskedLM"))
    return auto_class.from_pretrained(named(label), trust_remote_code=True)


def numbers() -> Any:
    """Of each repository the logits, and where the model's class came from."""
    found = {}
    for label in (*ENCODERS, *FAMILIES):
        model = load(label)
        home = type(model).__module__.partition(".")[0]
        body = transformers.AutoModel.from_pretrained(named(label), trust_remote_code=True)
        found[label] = {"home": home, "logits": logits(model, label), "body": type(body).__name__}
    return found


def task() -> Any:
    pipe = transformers.pipeline("fill-mask", model=named("pushed"), trust_remote_code=True)
    return [answer["token_str"] for answer in pipe(SENTENCE)]


def generated() -> Any:
    return load("decoder").eval().generate(IDS, max_new_tokens=4, do_sample=False).tolist()


def passed_on() -> Any:
    """The reader pushes what was loaded, and loads it again."""
    load("pushed").push_to_hub(named("passed_on"), private=True)
    return logits(load("passed_on"))


def without_code() -> Any:
    return refusal(load, "bare")


JOBS = {job.__name__: job for job in (numbers, task, generated, passed_on, without_code)}

if __name__ == "__main__":
    # As if it were not installed.
    sys.modules["qkv"] = None  # type: ignore[assignment]
    main(JOBS)
