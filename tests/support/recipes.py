"""Recipes of tests, and every recipe at a tiny size, on data that are at hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.recipes.loading import build
from qkv.scripts.recipes.schema import Recipe
from sine_waves import recordings

WORDS = "one two three four five six seven eight nine ten".split()
LINES = [f"{WORDS[index % 10]} {WORDS[index // 10 % 10]} is {index} and no more" for index in range(120)]
LAYER = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2"]
TINY = ["max_steps=2", "warmup_steps=1", "batch_size=8", *LAYER, "text.made=60", "text.evaluated=6", "text.length=32",
        "text.symbols=8", "text.vocab_size=300", "precision=fp32", "shards=4", "accumulate=1"]  # fmt: skip
# What a recipe needs here beside TINY: the full-size ones read something else, and one layer has one pattern.
ALSO = {
    "gpt2-124m": ["text.tokenizer={here}/tokenizer", "data={here}/lines", "holdout=0.25"],
    "bert-base": ["text.tokenizer={here}/tokenizer", "data={here}/lines", "holdout=0.25"],
    "transformer-base": ["data={here}/lines", "text.column=text", "text.target=text"],
    "vit-b16": ["data={here}/images", "model.image_size=16", "model.patch_size=8"],
    "spoken-digits": ["data={here}/sound", "holdout=0.25"],
    "shapes-captions": ["model.vision_config.num_hidden_layers=1", "text.symbols=4"],
    "chat": ["text.length=64"],
    "shapes-detect": ["model.encoder.backbone_config.hidden_sizes=[8, 16]", "model.decoder.num_hidden_layers=1",
                      "text.symbols=3"],
    "facts-answers": ["text.symbols=3", "model.pattern=[sliding]"],
    **dict.fromkeys(("docs-lm", "docs-mlm", "docs-classify", "translate", "docs-tasks"), ["model.pattern=[sliding]"]),
    **dict.fromkeys(("digits-draw", "tunes"), ["model.pattern=[row]"]),
}  # fmt: skip
# Words of TINY that a recipe has otherwise, or not at all.
WITHOUT = {
    "translate-recurrent": ["model.num_attention_heads=2"],
    "shapes-detect": ["model.num_hidden_layers=1", "text.symbols=8"],
    "chat": ["text.length=32"],
    **dict.fromkeys(("shapes-captions", "facts-answers"), ["text.symbols=8"]),
}


def tiny_words(name: str, here: Path) -> list[str]:
    """The words after `qkv train NAME`, where the folder holds what `write_data` writes."""
    words = [word.format(here=here) for word in ALSO.get(name, [])]
    return words + [word for word in TINY if word not in WITHOUT.get(name, [])]


def small(name: str) -> Callable[[Recipe], Corpus]:
    """What stands for a manual."""
    labels = {"train": [index % 3 for index in range(100)], "test": [0, 1, 2] * 3}
    texts = {"train": LINES[:100], "test": LINES[100:109]}
    return lambda recipe: Corpus(name, name, "s", texts, labels, ["a", "b", "c"])


def small_tasks(recipe: Recipe) -> Corpus:
    """What stands for the tasks of a manual."""
    targets, tasks = (
        {"train": LINES[:100], "test": LINES[100:109]},
        {"train": ["a", "b"] * 50, "test": ["a", "b", "a"] * 3},
    )
    texts = {
        name: [f"{task}: {text}" for task, text in zip(tasks[name], own, strict=True)] for name, own in targets.items()
    }
    return Corpus("django-tasks", "t", "s", texts, targets=targets, tasks=tasks)


STAND_INS: dict[str, Callable[[Recipe], Corpus]] = {
    name: small(name) for name in ("django-docs", "django-paragraphs", "docstrings", "sources")
}
STAND_INS["django-tasks"] = small_tasks


def write_data(folder: Path) -> None:
    """Write a tokenizer, lines, images and sound into a folder."""
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]", "eos": "[SEP]"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{key}_token": word for key, word in special.items()}
    )
    fast.save_pretrained(folder / "tokenizer")
    (folder / "lines").mkdir()
    for part in range(4):
        lines = [json.dumps({"text": line, "translation": {"de": line, "en": line[::-1]}}) for line in LINES[part::4]]
        (folder / "lines" / f"train-{part}.jsonl").write_text("\n".join(lines))
    for split, count in (("train", 6), ("validation", 2)):
        for name in ("cat", "dog"):
            (folder / "images" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.random.default_rng([number, count, ord(name[0])]).integers(0, 256, (20, 24, 3), np.uint8)
                Image.fromarray(pixels).save(folder / "images" / split / name / f"{number}.png")
    recordings(folder / "sound")


def recipe_of(**values: Any) -> Recipe:
    """A recipe of these values under their names in files, and otherwise of defaults."""
    return build({"name": "tiny", "title": "", "data": "", "architecture": "", **values})
