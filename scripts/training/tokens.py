"""How do texts become tokens? By several processes, once: what was made is found again by what it was made of."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from datasets import Dataset, Features, Value
from datasets import Sequence as ListOf
from datasets.fingerprint import Hasher

from qkv.scripts.training.task import Record

# Tokens, and how many of them are not special.
Part = tuple[list[int], int]
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
    return data.map(
        partial(encode, tokenizer=tokenizer, length=length, long=long),
        input_columns=column,
        batched=True,
        remove_columns=data.column_names,
        features=FEATURES,
        num_proc=processes,
        new_fingerprint=Hasher.hash((data._fingerprint, identity(tokenizer), column, length, long)),
        desc="tokenising",
    )


def encode(texts: Sequence[str], tokenizer: Any, length: int | None, long: Long) -> dict[str, list[Any]]:
    """Columns of tokens of the texts: several rows of one that is longer than `length`."""
    refuse_short(tokenizer, length)
    columns: dict[str, list[Any]] = {name: [] for name in FEATURES}
    for parts in (framed if tokenizer.is_fast else framed_by_hand)(texts, tokenizer, length):
        kept = parts if long == "split" else parts[:1]
        lost = sum(own for _, own in parts[len(kept) :])
        for part, (row, _) in enumerate(kept):
            for name, value in zip(FEATURES, (row, len(row), part, lost), strict=True):
                columns[name].append(value)
    return columns


def refuse_short(tokenizer: Any, length: int | None) -> None:
    """Raise ValueError where special tokens would fill the rows."""
    special = tokenizer.num_special_tokens_to_add()
    if length is not None and length <= special:
        raise ValueError(f"rows of {length} tokens have no room beside {special} special ones; make them longer")


def framed(texts: Sequence[str], tokenizer: Any, length: int | None) -> list[list[Part]]:
    """The parts of each text, each between the special tokens that frame a text, and how many others it has."""
    cut = {} if length is None else {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    found = tokenizer(list(texts), return_attention_mask=False, return_special_tokens_mask=True, verbose=False, **cut)
    rows = found["input_ids"]
    owners = found.get("overflow_to_sample_mapping", range(len(rows)))
    parts: list[list[Part]] = [[] for _ in texts]
    for row, special, owner in zip(rows, found["special_tokens_mask"], owners, strict=True):
        parts[owner].append((row, len(row) - sum(special)))
    return parts


def framed_by_hand(texts: Sequence[str], tokenizer: Any, length: int | None) -> list[list[Part]]:
    """The same from a tokenizer in Python, which cuts nothing off but the end."""
    found = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
    parts = []
    for ids in found:
        size = max(len(ids), 1) if length is None else length - tokenizer.num_special_tokens_to_add()
        pieces = [ids[start : start + size] for start in range(0, max(len(ids), 1), size)]
        parts.append([(tokenizer.build_inputs_with_special_tokens(piece), len(piece)) for piece in pieces])
    return parts


def documents(records: Sequence[Record], tokenizer: Any, column: str = "text") -> list[list[Record]]:
    """What a stream of texts is prepared by: of each record the tokens, whole."""
    found = encode([record[column] for record in records], tokenizer, None, "split")
    return [[{"input_ids": ids}] for ids in found["input_ids"]]


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
