"""Dialogue: a decoder learns the turns of the assistant, as the chat template of its tokenizer writes them."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from qkv.scripts.data.chat_template import TEMPLATE, chat_tokens
from qkv.scripts.data.collate import IGNORED, pack_whole, pad_targets, padded_columns
from qkv.scripts.data.dialogues import Dialogues, text_of
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.tokenization import count_truncated, tokenizer_for
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.causal_lm import CausalLM
from qkv.scripts.tasks.task import first

USAGE = """from transformers import pipeline

chat = pipeline("text-generation", model=...)
messages = [{{"role": "user", "content": {question}}}]
inputs = chat.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
tokens = chat.model.generate(**inputs, max_new_tokens=64, do_sample=False)
print(chat.tokenizer.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))"""


class Chat(CausalLM):
    """Predict the assistant's turns in dialogues, with the token that ends each; loss and perplexity are of these.

    Rows of the training hold whole dialogues, which do not attend to each other, and evaluated rows one each. Of a
    dialogue longer than `text.length` the end is cut off.
    """

    needs = ["eos"]

    def __init__(self, recipe: Recipe, corpus: Dialogues) -> None:
        self.sizes_of_texts: dict[str, list[int]] = {}
        super().__init__(recipe, corpus)
        self.truncated = count_truncated(self.sizes_of_texts, self.length)
        self.usage = USAGE.format(question=json.dumps(recipe.prompt or self.prompt(), ensure_ascii=False))

    def make_tokenizer(self, recipe: Recipe) -> Any:
        """Return the tokenizer, with a chat template where it has none."""
        tokenizer: Any = tokenizer_for(recipe, list(map(text_of, self.corpus.texts.get("train", []))), needs=self.needs)
        if not tokenizer.chat_template:
            if tokenizer.bos_token is None:
                raise ValueError(
                    f"the tokenizer of {tokenizer.name_or_path!r} has neither a chat template nor a start token to "
                    "write one with; set one of the two in its folder, or leave out text.tokenizer"
                )
            tokenizer.chat_template = TEMPLATE
        tokenizer.split_special_tokens = False  # by whose tokens the template separates turns
        return tokenizer

    def rows(self, split: str) -> Columns:
        """Return dialogues as rows: of the training packed, of evaluated splits one by one."""
        tokens = [chat_tokens(self.tokenizer, dialogue) for dialogue in self.corpus.texts[split]]
        self.sizes_of_texts[split] = [len(ids) for ids, _ in tokens]
        cut = [(ids[: self.length], learned[: self.length]) for ids, learned in tokens]
        kept = [(ids, learned) for ids, learned in cut if learned[1:].any()]
        reason = f"dialogues of the {split} split whose assistant speaks beyond text.length={self.length}:"
        self.corpus.read.left_out.update({reason: len(cut) - len(kept)} if len(cut) > len(kept) else {})
        if not kept:
            raise ValueError(
                f"the assistant speaks beyond text.length={self.length} in all {len(cut)} dialogues of the {split} "
                f"split; set text.length={max(self.sizes_of_texts[split], default=self.length)} for whole ones"
            )
        if split == "train":
            return Columns(stack(list(pack_whole(kept, self.length))))
        labels = [np.where(learned, ids, IGNORED) for ids, learned in kept]
        padded = {"input_ids": ([ids for ids, _ in kept], self.tokenizer.pad_token_id), "labels": (labels, IGNORED)}
        return padded_columns(padded)

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        return stack(records) if "position_ids" in records[0] else pad_targets(records)

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        wanted = batch["labels"][:, 1:]
        return {"accuracy": ((outputs.logits[:, :-1].argmax(-1) == wanted) & (wanted != IGNORED)).sum()}

    def reduce(self, sums: dict[str, float], answers: Any) -> dict[str, float]:
        """Return loss, perplexity and accuracy by token of the assistant."""
        return {**super().reduce(sums, answers), "accuracy": sums["accuracy"] / sums["targets"]}

    def prompt(self) -> str:
        dialogue = first(self.corpus.texts) or {"messages": []}
        return next((each["content"] for each in dialogue["messages"] if each["role"] == "user"), "")
