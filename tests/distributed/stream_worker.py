"""A small decoder trained on a stream of bad and good lines, packed: one of the processes of `test_stream.py`."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor

import checkout  # noqa: F401
import qkv
from qkv.scripts.data.corpus import DataSet
from qkv.scripts.data.examples import Record
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.validation import RecordValidation, check_text
from qkv.scripts.training.loop import Loop
from recipes import recipe_of
from tiny_training import task_of

TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


def letters(records: list[Record]) -> list[list[Record]]:
    """A token for each letter."""
    return [[{"input_ids": [ord(letter) - ord("a") + 1 for letter in record["text"]]}] for record in records]


def prepared(path: Path, shards: int) -> Loop:
    """A training on the lines of a file."""
    torch.manual_seed(0)
    recipe = recipe_of(data=str(path), max_steps=12, batch_size=8, accumulate=2, learning_rate=1e-2, shards=shards, buffer=5,
        documents="line", bad_records=0.1, workers=1,
    )  # fmt: skip
    invalid_records = RecordValidation(recipe.data.bad_records)
    stream = Stream.of(recipe, invalid_records, {"text": check_text}, prepare=letters, length=10)
    model = qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(vocab_size=30, **TINY)).double()
    data = DataSet("t", "t", "t", invalid_records=invalid_records)
    task = task_of(stream, data=data, count=lambda batch: int((batch["labels"][:, 1:] != -100).sum()))
    return Loop(Accelerator(cpu=True), model, recipe, task)


def trained(path: Path, shards: int) -> dict[str, Tensor]:
    """The weights, and the losses on the way, after some steps on the lines of a file."""
    loop = prepared(path, shards)
    losses = torch.stack([step.loss for step in loop.steps()])
    weights = loop.accelerator.unwrap_model(loop.model).state_dict()
    return {**{name: value.detach().clone() for name, value in weights.items()}, "losses": losses}


if __name__ == "__main__":
    found = trained(Path(sys.argv[1]), 4)
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    save_file(found, f"{sys.argv[2]}-{accelerator.process_index}")
    accelerator.end_training()
