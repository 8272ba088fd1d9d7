"""Generation of grids of tokens, such as images and tunes, by a decoder after a prompt."""

from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.collate import IGNORED, pad_rows
from qkv.scripts.data.corpus import Generate, PromptedCorpus
from qkv.scripts.data.examples import Batch, Columns
from qkv.scripts.data.tokenization import START, config_fields, tokenize, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.causal_lm import TextGeneration
from qkv.scripts.tasks.task import Answer


class PromptedGeneration(TextGeneration):
    """Write each target after its text; all texts have as many tokens, and all targets.

    Bits are by token of a target. Metrics of generated targets are of one sample for each text of an evaluated split,
    from random numbers that are the same every time.
    """

    generates = True
    reduces_answers = True

    def __init__(self, recipe: Recipe, data: PromptedCorpus) -> None:
        self.prompted = data
        self.corpus = corpus = data.corpus.divided(recipe)
        words = [*corpus.texts["train"], *corpus.targets["train"]]
        self.tokenizer = tokenizer = tokenizer_for(recipe, words, f"$A {START}", needs=["bos"])
        splits = {name: self.rows(name) for name in corpus.texts}
        self.text_length = len(tokenizer(corpus.texts["train"][0])["input_ids"])
        length = splits["train"].columns["input_ids"].shape[1]
        used: Any = tokenizer.convert_tokens_to_ids(sorted(set(" ".join(corpus.targets["train"]).split())))
        others = sorted(set(range(len(tokenizer))) - set(used))
        # Samples one target: as long as all are, in tokens of targets.
        new = length - self.text_length
        options = {"do_sample": True, "top_k": 0, "max_new_tokens": new, "suppress_tokens": others}
        grid = {"max_position_embeddings": length, "text_length": self.text_length, "grid_columns": data.columns}
        config = config_fields(tokenizer, **grid)
        super().__init__(corpus, splits, tokenizer, config, generation=options, usage=data.usage)

    def rows(self, split: str) -> Columns:
        """Join each text, a start token and its target, which alone is to be predicted."""
        prompts = tokenize(self.tokenizer, self.corpus.texts[split])
        grids = tokenize(self.tokenizer, self.corpus.targets[split], add_special_tokens=False)
        inputs = torch.cat((pad_rows(prompts, IGNORED), pad_rows(grids, IGNORED)), dim=1)
        if (inputs == IGNORED).any():
            raise ValueError(
                "texts and targets of unequal numbers of tokens have no place on a grid; take text.tokenizer=words"
            )
        labels = inputs.clone()
        labels[:, : len(prompts[0])] = IGNORED
        return Columns({"input_ids": inputs, "labels": labels, "_row": torch.arange(len(inputs))})

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return a sample for each prompt of a batch, and the prompt."""
        prompts = batch["input_ids"][:, : self.text_length]
        tokens = sample(model, prompts, int(batch["_row"][0]), self.generation)
        texts = (self.tokenizer.batch_decode(each, skip_special_tokens=True) for each in (tokens, prompts))
        return list(zip(*texts, strict=True))

    def reduce(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """Return loss and bits by token, and the metrics of generated targets."""
        results, prompts = zip(*answers, strict=True)
        loss = sums["loss"] / sums["targets"]
        return {"loss": loss, f"bits_per_{self.prompted.unit}": loss / log(2), **self.prompted.score(prompts, results)}

    def products(self, model: Any, folder: Path) -> dict[str, str]:
        return self.prompted.products(generator(model, self.tokenizer, self.generation), folder)


def generator(model: Any, tokenizer: PreTrainedTokenizerFast, options: Mapping[str, Any]) -> Generate:
    """Return a function that generates a text for each prompt with a model and the options of `generate`."""

    def generate(prompts: Sequence[str]) -> list[str]:
        inputs = tokenizer(list(prompts), return_tensors="pt").to(model.device)
        return tokenizer.batch_decode(sample(model, inputs["input_ids"], 0, options), skip_special_tokens=True)

    return generate


def sample(model: Any, prompts: torch.Tensor, seed: int, options: Mapping[str, Any]) -> torch.Tensor:
    """Generate tokens after each prompt from a seed, without touching the random state of the training."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        tokens = model.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), **options)
    new: torch.Tensor = tokens[:, prompts.shape[1] :]
    return new
