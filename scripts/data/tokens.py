"""How do many texts become tokens? By several processes, once: what was made is found again by what it was made of."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import Dataset
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.tokenization import ids

# Under datasets' own cache.
FOLDER = "qkv-tokens"


@dataclass(frozen=True)
class Encoder:
    """Makes tokens of the texts of a table: with `processes` that many do, and the result is kept on disk.

    It is found again by the texts, by what the tokenizer does, and by the options of the call.
    """

    tokenizer: PreTrainedTokenizerFast
    processes: int = 0

    def __call__(self, texts: Sequence[str], **options: Any) -> list[np.ndarray]:
        """The tokens of each text, as `ids` makes them."""
        if not self.processes:
            return ids(self.tokenizer, texts, **options)
        # Threads of the tokenizer's own, which what trained it may have begun, do not live on in a new process.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        data = Dataset.from_dict({"text": list(texts)})
        made = data.map(
            partial(encode, tokenizer=self.tokenizer, options=options),
            batched=True,
            remove_columns="text",
            num_proc=self.processes,
            cache_file_name=str(self.file(texts, options)),
            desc="tokenising",
        )
        return list(made.with_format("numpy")["input_ids"])

    def file(self, texts: Sequence[str], options: dict[str, Any]) -> Path:
        """Where the tokens of these texts are kept."""
        name = Hasher.hash((list(texts), identity(self.tokenizer), sorted(options.items())))
        folder = Path(datasets.config.HF_DATASETS_CACHE) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.arrow"


def encode(batch: dict[str, list[str]], tokenizer: Any, options: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    """The tokens of a column of texts."""
    return {"input_ids": ids(tokenizer, batch["text"], **options)}


def identity(tokenizer: PreTrainedTokenizerFast) -> str:
    """What tells a tokenizer from another, whatever it has been used for: a call leaves its truncation behind."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    return Hasher.hash({name: part for name, part in content.items() if name not in ("truncation", "padding")})
