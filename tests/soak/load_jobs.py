"""Thousands of loads: by class and Auto class, by the folder's own code, converted there and back.

`main` runs in a process that was forked for it, and writes what it found as JSON.
"""

import gc
import hashlib
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from watching import anonymous_memory, deadline, growth, held

import checkout  # noqa: F401  makes qkv importable
import qkv
import stock_folders
import tiny
from qkv.scripts.publishing.export.folder import build_folder

BLOCK = 32  # bytes that Python's allocator takes for a whole number
Load = Callable[[], Any]


class Way(NamedTuple):
    """A way of loading a model, the inputs that it takes, and how many tensors are read from files."""

    load: Load
    inputs: dict[str, Tensor]
    reads: int


STOCK = {
    "bert": (stock_folders.bert, "AutoModelForSequenceClassification"),
    "gpt2": (stock_folders.gpt2, "AutoModelForCausalLM"),
    "vit": (stock_folders.vit, "AutoModelForImageClassification"),
}


def by_own_code(folder: Path, auto_class: str) -> Any:
    """The model of a folder by the code in it, as `trust_remote_code=True` loads it where qkv is not."""
    reference = json.loads((folder / "config.json").read_text())["auto_map"][auto_class]
    return get_class_from_dynamic_module(reference, folder).from_pretrained(folder)


def ways(folder: Path) -> dict[str, Way]:
    """Every way of loading every head."""
    found: dict[str, Way] = {}
    for case in tiny.HEADS:
        place, inputs = folder / case.name, case.inputs()
        build_folder(case.build(), place)
        auto, reads = getattr(transformers, case.auto_class), tensors(place)
        found[f"class, {case.name}"] = Way(partial(case.model_class.from_pretrained, place), inputs, reads)
        found[f"Auto class, {case.name}"] = Way(partial(auto.from_pretrained, place), inputs, reads)
        found[f"own code, {case.name}"] = Way(partial(by_own_code, place, case.auto_class), inputs, reads)
    for name, (make, auto_class) in STOCK.items():
        place = make(folder / name)
        inputs = {"pixel_values": torch.ones(2, 3, 8, 8)} if name == "vit" else {"input_ids": torch.arange(5)[None]}
        ours = partial(qkv.from_transformers, str(place))
        stock, reads = partial(getattr(transformers, auto_class).from_pretrained, place), tensors(place)
        found[f"converted, {name}"] = Way(ours, inputs, reads)
        found[f"converted and back, {name}"] = Way(lambda ours=ours: qkv.to_transformers(ours()), inputs, reads)
        found[f"stock, {name}"] = Way(stock, inputs, reads)
    return found


def tensors(folder: Path) -> int:
    """How many tensors a load of a folder reads."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return len(file.keys())


def forgotten(folder: Path) -> float:
    """How many objects safetensors forgets for each tensor that it reads: version 0.8.0 the two ends of its bytes."""
    path, times = folder / "model.safetensors", 1000
    for number in range(2 * times):  # of which the first half fills what is kept for reuse
        if number == times:
            gc.collect()
            before = sys.getallocatedblocks()
        load_file(path)
    gc.collect()
    return (sys.getallocatedblocks() - before) / times / tensors(folder)


@torch.no_grad()
def digest(model: Any, inputs: dict[str, Tensor]) -> str:
    """A hash of all that a model puts out."""
    output = model.eval()(**inputs)
    tensors = [value for value in output.values() if isinstance(value, Tensor)]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in tensors)).hexdigest()


def load_often(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Load again and again: what differed from the first time, and what the process held on the way."""
    chance, known = random.Random(f"loads {seed}"), ways(folder)
    names, lost = list(known), forgotten(folder / tiny.HEADS[0].name)
    first: dict[str, str] = {}
    different, memory, blocks, kept, counts, reads = [], [], [], [], Counter(), 0
    warm, every = max(count // 5, 2 * len(names)), max(count // 100, 1)
    for number in range(1, count + 1):
        name = names[number - 1] if number <= len(names) else chance.choice(names)
        way = known[name]
        with deadline(120):
            found = digest(way.load(), way.inputs)
        counts[name.partition(",")[0]] += 1
        reads += way.reads
        if first.setdefault(name, found) != found:
            different.append(name)
        if number > warm and number % every == 0:
            memory.append((number, anonymous_memory(), lost * reads))
            blocks.append(sys.getallocatedblocks())
            kept.append(held())
    (began, _, lost_before), (*_, lost_after) = memory[0], memory[-1]
    kilobytes, others = [each for _, each, _ in memory], [each - BLOCK * gone / 1024 for _, each, gone in memory]
    return {
        "loads": count, "ways": dict(counts), "folders": len(tiny.HEADS) + len(STOCK), "other outputs": different,
        "forgotten by safetensors, objects a tensor": lost,
        "memory growth": growth(kilobytes), "memory growth without what safetensors forgets": growth(others),
        "other objects a load": (blocks[-1] - blocks[0] - (lost_after - lost_before)) / (count - began),
        "memory kB": [kilobytes[0], min(kilobytes), max(kilobytes), kilobytes[-1]],
        "held": {name: [kept[0][name], kept[-1][name]] for name in kept[0]},
    }  # fmt: skip


def main(folder: str, count: str, seed: str, answer: str) -> None:
    torch.set_num_threads(1)
    place = Path(folder)
    (place / "temporary").mkdir()
    tempfile.tempdir = str(place / "temporary")
    Path(answer).write_text(json.dumps(load_often(place, int(count), int(seed))))
