"""Generation of grids of tokens, such as images and tunes, by a decoder after a prompt."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, pad_rows
from qkv.scripts.data.corpus import Corpus, Generate, PromptedCorpus
from qkv.scripts.data.examples import Batch, Columns
from qkv.scripts.data.tokenization import START, config_fields, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.causal_lm import KIND, count_targets
from qkv.scripts.tasks.task import Answer, Example, Task

NEW_TOKENS = 12  # of the card's example, which are greedy


def prompted_generation(recipe: Recipe, data: PromptedCorpus) -> Task:
    """Make the task of writing each target after its text; all texts have as many tokens, and all targets.

    Bits are by token of a target. Metrics of generated targets are of one sample for each text of an evaluated split,
    from random numbers that are the same every time.
    """
    corpus = data.corpus.with_holdout(recipe.data.holdout).limited(recipe.text.evaluated)
    words = [*corpus.texts["train"], *corpus.targets["train"]]
    tokenizer = tokenizer_for(recipe, words, f"$A {START}", needs=["bos"])
    splits = {name: rows(tokenizer, texts, corpus.targets[name]) for name, texts in corpus.texts.items()}
    text = len(tokenizer(corpus.texts["train"][0])["input_ids"])
    length = splits["train"].columns["input_ids"].shape[1]
    options = generation_options(tokenizer, corpus, length - text)
    return Task(
        data=corpus,
        kind=KIND,
        processor=tokenizer,
        train=splits.pop("train"),
        splits=splits,
        count=count_targets,
        answer=partial(answer, tokenizer=tokenizer, options=options, text=text),
        reduce=partial(reduce_generated, data=data),
        config=config_fields(tokenizer, max_position_embeddings=length, text_length=text, grid_columns=data.columns),
        baselines=partial(data.baselines, corpus),
        example=partial(greedy_example, tokenizer, corpus.texts["test"][0], options),
        generation=options,
        products=lambda model, folder: data.products(generator(model, tokenizer, options), folder),
        usage=data.usage,
    )


def generation_options(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, length: int) -> dict[str, Any]:
    """Return the options of `generate` that sample one target: as long as all are, in tokens of targets."""
    used: Any = tokenizer.convert_tokens_to_ids(sorted(set(" ".join(corpus.targets["train"]).split())))
    others = sorted(set(range(len(tokenizer))) - set(used))
    return {"do_sample": True, "top_k": 0, "max_new_tokens": length, "suppress_tokens": others}


def rows(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], targets: Sequence[str]) -> Columns:
    """Join each text, a start token and its target, which alone is to be predicted."""
    prompts, grids = tokenize(tokenizer, texts), tokenize(tokenizer, targets, add_special_tokens=False)
    inputs = torch.cat((pad_rows(prompts, IGNORED), pad_rows(grids, IGNORED)), dim=1)
    if (inputs == IGNORED).any():
        raise ValueError(
            "texts and targets of unequal numbers of tokens have no place on a grid; take text.tokenizer=words"
        )
    labels = inputs.clone()
    labels[:, : len(prompts[0])] = IGNORED
    return Columns({"input_ids": inputs, "labels": labels, "_row": torch.arange(len(inputs))})


def generator(model: Any, tokenizer: PreTrainedTokenizerFast, options: Mapping[str, Any]) -> Generate:
    """Return a function that generates a text for each prompt with a model and the options of `generate`."""

    def generate(prompts: Sequence[str]) -> list[str]:
        inputs = tokenizer(list(prompts), return_tensors="pt").to(model.device)
        return tokenizer.batch_decode(sample(model, inputs["input_ids"], 0, options), skip_special_tokens=True)

    return generate


def sample(model: Any, prompts: torch.Tensor, seed: int, options: Mapping[str, Any]) -> torch.Tensor:
    """Generate tokens after each prompt from a seed of their own; the training's random state stays as it is."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        tokens = model.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), **options)
    new: torch.Tensor = tokens[:, prompts.shape[1] :]
    return new


def answer(
    model: Any, outputs: Any, batch: Batch, *, tokenizer: PreTrainedTokenizerFast, options: Mapping[str, Any], text: int
) -> list[Answer]:
    """Return a sample for each prompt of a batch, and the prompt."""
    prompts = batch["input_ids"][:, :text]
    tokens = sample(model, prompts, int(batch["_row"][0]), options)
    texts = (tokenizer.batch_decode(each, skip_special_tokens=True) for each in (tokens, prompts))
    return list(zip(*texts, strict=True))


def reduce_generated(sums: dict[str, float], answers: Sequence[Answer], data: PromptedCorpus) -> dict[str, float]:
    """Return loss and bits by token, and the metrics of generated targets."""
    results, prompts = zip(*answers, strict=True)
    loss = sums["loss"] / sums["targets"]
    return {"loss": loss, f"bits_per_{data.unit}": loss / log(2), **data.score(prompts, results)}


def greedy_example(tokenizer: PreTrainedTokenizerFast, prompt: str, options: Mapping[str, Any], model: Any) -> Example:
    """Return a prompt, and the first tokens that greedy decoding generates."""
    greedy = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "suppress_tokens": options["suppress_tokens"]}
    (text,) = generator(model, tokenizer, greedy)([prompt])
    return Example(prompt, {"generated_text": text}, {**greedy, "return_full_text": False})
