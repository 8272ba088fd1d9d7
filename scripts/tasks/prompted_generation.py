"""What is made of a few words? A row of tokens, such as an image or a tune, that a decoder writes after its prompt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, table
from qkv.scripts.data.corpus import Corpus, task_of
from qkv.scripts.data.tokenization import START, ids, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import Baselines
from qkv.scripts.tasks.causal_lm import KIND, targeted
from qkv.scripts.tasks.task import Answer, Batch, Columns, Example, Task

# Tokens of the example that a pipeline is shown, which are the likeliest and no matter of chance.
SHOWN = 12


@dataclass(frozen=True)
class Craft:
    """What is made: rows of `columns` words, of which each is a `unit`.

    `judge` (prompts, what was made of each) gives metrics of what was made. `products` (maker, folder) leaves what
    people can look at or listen to in a run's folder, and `usage` is a program that makes some, with `model=...` for
    the published model.
    """

    unit: str
    columns: int
    judge: Callable[[Sequence[str], Sequence[str]], dict[str, float]]
    products: Callable[["Maker", Path], dict[str, str]]
    baselines: Callable[[Corpus], Baselines]
    usage: str


def prompted(recipe: Recipe, corpus: Corpus, craft: Craft) -> Task:
    """The task of writing the target of a text after it; all texts have as many words, and all targets.

    Bits are by word of a target. Metrics of what is made are of one sample for each text of an evaluated split, from
    random numbers that are the same every time.
    """
    corpus = corpus.held_back(recipe.holdout).limited(recipe.text.evaluated)
    words = [*corpus.texts["train"], *corpus.targets["train"]]
    tokenizer = tokenizer_for(recipe, words, f"$A {START}", needs=["bos"])
    splits = {name: rows(tokenizer, texts, corpus.targets[name]) for name, texts in corpus.texts.items()}
    text = len(tokenizer(corpus.texts["train"][0])["input_ids"])
    whole = splits["train"].columns["input_ids"].shape[1]
    options = writing(tokenizer, corpus, whole - text)
    return task_of(
        corpus,
        tokenizer,
        KIND,
        whole,
        config={"text_length": text, "grid_columns": craft.columns},
        train=splits.pop("train"),
        splits=splits,
        count=targeted,
        answer=partial(made, tokenizer=tokenizer, options=options, text=text),
        measure=partial(measured, craft=craft),
        baselines=partial(craft.baselines, corpus),
        example=partial(likeliest, tokenizer, corpus.texts["test"][0], options),
        generation=options,
        products=lambda model, folder: craft.products(Maker(model, tokenizer, options), folder),
        usage=craft.usage,
    )


def writing(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, length: int) -> dict[str, Any]:
    """How `generate` writes one target: as long as all are, in words of targets, each as often as it is likely."""
    written: Any = tokenizer.convert_tokens_to_ids(sorted(set(" ".join(corpus.targets["train"]).split())))
    others = sorted(set(range(len(tokenizer))) - set(written))
    return {"do_sample": True, "top_k": 0, "max_new_tokens": length, "suppress_tokens": others}


def rows(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], targets: Sequence[str]) -> Columns:
    """Each text, a token that asks for its target, and the target, which alone is to be predicted."""
    given, wanted = ids(tokenizer, texts), ids(tokenizer, targets, add_special_tokens=False)
    inputs = torch.cat((table(given, IGNORED), table(wanted, IGNORED)), dim=1)
    if (inputs == IGNORED).any():
        raise ValueError(
            "texts and targets of unequal numbers of tokens have no place on a grid; take text.tokenizer=words"
        )
    labels = inputs.clone()
    labels[:, : len(given[0])] = IGNORED
    return Columns({"input_ids": inputs, "labels": labels, "_row": torch.arange(len(inputs))})


@dataclass(frozen=True)
class Maker:
    """A model that makes something of each prompt, with the options of `generate`."""

    model: Any
    tokenizer: PreTrainedTokenizerFast
    options: Mapping[str, Any]

    def __call__(self, prompts: Sequence[str], seed: int = 0) -> list[str]:
        """What is made of each prompt, as words."""
        inputs = self.tokenizer(list(prompts), return_tensors="pt").to(self.model.device)
        tokens = sampled(self.model, inputs["input_ids"], seed, self.options)
        return self.tokenizer.batch_decode(tokens, skip_special_tokens=True)


def sampled(model: Any, prompts: torch.Tensor, seed: int, options: Mapping[str, Any]) -> torch.Tensor:
    """What a model writes after each prompt, by chance but the same every time; the training's chance is left alone."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        tokens = model.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), **options)
    rest: torch.Tensor = tokens[:, prompts.shape[1] :]
    return rest


def made(
    model: Any, outputs: Any, batch: Batch, *, tokenizer: PreTrainedTokenizerFast, options: Mapping[str, Any], text: int
) -> list[Answer]:
    """What the model makes of each prompt of a batch, and the prompt."""
    prompts = batch["input_ids"][:, :text]
    tokens = sampled(model, prompts, int(batch["_row"][0]), options)
    texts = (tokenizer.batch_decode(each, skip_special_tokens=True) for each in (tokens, prompts))
    return list(zip(*texts, strict=True))


def measured(sums: dict[str, float], answers: Sequence[Answer], craft: Craft) -> dict[str, float]:
    """Loss and bits by word, and how good what was made is."""
    results, prompts = zip(*answers, strict=True)
    loss = sums["loss"] / sums["targets"]
    return {"loss": loss, f"bits_per_{craft.unit}": loss / log(2), **craft.judge(prompts, results)}


def likeliest(tokenizer: PreTrainedTokenizerFast, prompt: str, options: Mapping[str, Any], model: Any) -> Example:
    """A prompt, and the first words of the likeliest result."""
    changed = {"do_sample": False, "max_new_tokens": SHOWN, "suppress_tokens": options["suppress_tokens"]}
    (text,) = Maker(model, tokenizer, changed)([prompt])
    return Example(prompt, {"generated_text": text}, {**changed, "return_full_text": False})
