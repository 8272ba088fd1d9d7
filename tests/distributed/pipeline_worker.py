"""One of two processes that hold a stage of a decoder each: what they score and generate together."""

import os

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

import tiny


def inputs() -> dict[str, Tensor]:
    """A row without padding, of which transformers' later stages know no length."""
    return {"input_ids": tiny.text(batch=1)["input_ids"]}


def main(folder: str, out: str) -> None:
    torch.distributed.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(pp_size=2))
    with torch.no_grad():
        logits = model(**inputs()).logits
    tokens = model.generate(**inputs(), max_new_tokens=6, do_sample=False)
    if os.environ["RANK"] == "0":
        torch.save({"logits": logits, "tokens": tokens}, out)
    torch.distributed.destroy_process_group()
