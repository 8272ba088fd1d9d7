"""How do texts become tokens? By several processes, once: what was made is found again by what it was made of."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from datasets import Dataset, Features, Value
from datasets import Sequence as ListOf
from datasets.fingerprint import Hasher

# What happens to a document of more than `length` tokens.
Long = Literal["split", "truncate"]
FEATURES = Features(
    {"input_ids": ListOf(Value("int32")), "length": Value("int32"), "part": Value("int32"), "lost": Value("int32")}
)


def tokenised(
    data: Dataset, tokenizer: Any, *, column: str = "text", length: int | None = None, long: Long = "split",
    processes: int | None = None,
) -> Dataset:  # fmt: skip
    """The tokens of a column of texts, as the tokenizer makes them, special ones included.

    A document longer than `length` becomes several rows, counted by `part` from 0, or loses its end, of `lost` tokens:
    never silently, see `counts`. The result is cached by the texts, the tokenizer and these choices.
    """
    make = encoder(tokenizer, length=length, long=long)
    return data.map(
        lambda batch: make(batch[column]),
        batched=True,
        remove_columns=data.column_names,
        features=FEATURES,
        num_proc=processes,
        new_fingerprint=Hasher.hash((data._fingerprint, identity(tokenizer), column, length, long)),
        desc="tokenising",
    )


def encoder(tokenizer: Any, *, length: int | None, long: Long) -> Callable[[Sequence[str]], dict[str, list[Any]]]:
    """Turns texts into rows of tokens."""
    return partial(encode, tokenizer=tokenizer, length=length, long=long)


def encode(texts: Sequence[str], tokenizer: Any, length: int | None, long: Long) -> dict[str, list[Any]]:
    """Columns of tokens of the texts: several rows of one that is longer than `length`."""
    # Cut by the tokenizer, every part gets the special tokens that frame a text.
    options = {} if length is None else {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    found = tokenizer(list(texts), add_special_tokens=True, return_attention_mask=False, verbose=False, **options)
    rows, owners = found["input_ids"], found.get("overflow_to_sample_mapping", range(len(found["input_ids"])))
    columns: dict[str, list[Any]] = {name: [] for name in FEATURES}
    last, part = None, 0
    for row, owner in zip(rows, owners, strict=True):
        part = part + 1 if owner == last else 0
        last = owner
        if part and long == "truncate":
            columns["lost"][-1] += len(row)
            continue
        for name, value in zip(FEATURES, (row, len(row), part, 0), strict=True):
            columns[name].append(value)
    return columns


def identity(tokenizer: Any) -> str:
    """What tells a tokenizer from another, whatever it has been used for: a call leaves its truncation behind."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return Hasher.hash((type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())))
    content = json.loads(backend.to_str())
    return Hasher.hash({name: part for name, part in content.items() if name not in ("truncation", "padding")})


def counts(tokens: Dataset) -> dict[str, int]:
    """Documents, tokens, and what became of documents that were too long."""
    length, part, lost = (np.asarray(tokens[name]) for name in ("length", "part", "lost"))
    return {
        "documents": int((part == 0).sum()),
        "tokens": int(length.sum()),
        "split": int((part == 1).sum()),
        "truncated": int((lost > 0).sum()),
        "lost tokens": int(lost.sum()),
    }
