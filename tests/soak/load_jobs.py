"""Thousands of loads: by class and Auto class, checked, by the folder's own code, converted there and back.

`main` runs in a process that was forked for it, and writes what it found as JSON.
"""

import hashlib
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from watching import anonymous_memory, deadline, growth, held

import checkout  # noqa: F401  makes qkv importable
import qkv
import stock_folders
import tiny
from qkv.scripts.publishing.export.folder import build_folder

Load = Callable[[], Any]
STOCK = {
    "bert": (stock_folders.bert, "AutoModelForSequenceClassification"),
    "gpt2": (stock_folders.gpt2, "AutoModelForCausalLM"),
    "vit": (stock_folders.vit, "AutoModelForImageClassification"),
}


def by_own_code(folder: Path, auto_class: str) -> Any:
    """The model of a folder by the code in it, as `trust_remote_code=True` loads it where qkv is not."""
    reference = json.loads((folder / "config.json").read_text())["auto_map"][auto_class]
    return get_class_from_dynamic_module(reference, folder).from_pretrained(folder)


def checked(load: Load) -> Any:
    """What is loaded after it was checked against its manifest."""
    with mock.patch.dict(os.environ, QKV_VERIFY="1"):
        return load()


def ways(folder: Path) -> dict[str, tuple[Load, dict[str, Tensor]]]:
    """Every way of loading every head, with the inputs that it takes."""
    found: dict[str, tuple[Load, dict[str, Tensor]]] = {}
    for case in tiny.HEADS:
        place, inputs = folder / case.name, case.inputs()
        build_folder(case.build(), place)
        auto = getattr(transformers, case.auto_class)
        found[f"class, {case.name}"] = partial(case.model_class.from_pretrained, place), inputs
        found[f"Auto class, {case.name}"] = partial(auto.from_pretrained, place), inputs
        found[f"checked, {case.name}"] = partial(checked, partial(auto.from_pretrained, place)), inputs
        found[f"own code, {case.name}"] = partial(by_own_code, place, case.auto_class), inputs
    for name, (make, auto_class) in STOCK.items():
        place = make(folder / name)
        inputs = {"pixel_values": torch.ones(2, 3, 8, 8)} if name == "vit" else {"input_ids": torch.arange(5)[None]}
        ours = partial(qkv.from_transformers, str(place))
        found[f"converted, {name}"] = ours, inputs
        found[f"converted and back, {name}"] = (lambda ours=ours: qkv.to_transformers(ours())), inputs
        found[f"stock, {name}"] = partial(getattr(transformers, auto_class).from_pretrained, place), inputs
    return found


@torch.no_grad()
def digest(model: Any, inputs: dict[str, Tensor]) -> str:
    """A hash of all that a model puts out."""
    output = model.eval()(**inputs)
    tensors = [value for value in output.values() if isinstance(value, Tensor)]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in tensors)).hexdigest()


def load_often(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Load again and again: what differed from the first time, and what the process held on the way."""
    chance, known = random.Random(f"loads {seed}"), ways(folder)
    names = list(known)
    first: dict[str, str] = {}
    different, memory, kept, counts = [], [], [], Counter()
    warm, every = max(count // 5, 2 * len(names)), max(count // 100, 1)
    for number in range(1, count + 1):
        name = names[number - 1] if number <= len(names) else chance.choice(names)
        load, inputs = known[name]
        with deadline(120):
            found = digest(load(), inputs)
        counts[name.partition(",")[0]] += 1
        if first.setdefault(name, found) != found:
            different.append(name)
        if number > warm and number % every == 0:
            memory.append(anonymous_memory())
            kept.append(held())
    return {
        "loads": count, "ways": dict(counts), "folders": len(tiny.HEADS) + len(STOCK), "other outputs": different,
        "memory growth": growth(memory), "memory kB": [memory[0], min(memory), max(memory), memory[-1]],
        "held": {name: [kept[0][name], kept[-1][name]] for name in kept[0]},
    }  # fmt: skip


def main(folder: str, count: str, seed: str, answer: str) -> None:
    torch.set_num_threads(1)
    place = Path(folder)
    (place / "temporary").mkdir()
    tempfile.tempdir = str(place / "temporary")
    Path(answer).write_text(json.dumps(load_often(place, int(count), int(seed))))
