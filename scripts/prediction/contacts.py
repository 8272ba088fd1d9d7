"""Predict contacts, for which transformers has no pipeline: the most probable pairs of residues of a chain."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.text_columns import check_chain
from qkv.scripts.prediction.generation import batched
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.contact_prediction import check_residues, ends_of
from qkv.scripts.tasks.metrics import APART, CONTACT, ranked_pairs


def read_chain(value: Any, source: Source) -> str:
    """Return a chain; InvalidRecord where its letters are not residues of the model, too few, or more than it reads."""
    chain, ends, tokenizer = check_chain(value), ends_of(source.architecture), source.tokenizer
    ids = tokenizer(chain, verbose=False)["input_ids"]
    try:
        check_residues([chain], [len(ids)], ends)
    except ValueError as error:
        raise InvalidRecord(str(error)) from None
    if len(chain) <= APART:
        raise InvalidRecord(f"{len(chain)} residues, of which no two are {APART} apart")
    if len(ids) > (limit := source.most_tokens or len(ids)):
        raise InvalidRecord(f"{len(chain)} residues, of which the model reads {limit - ends}; give it a part of them")
    if set(ids[ends // 2 : len(ids) - ends // 2]) == {tokenizer.unk_token_id}:
        raise InvalidRecord(f"{chain[:20]!r} has no residue that the model knows")
    return chain


@torch.no_grad()
def predict_contacts(source: Source, inputs: Sequence[str], options: Options) -> Iterator[dict[str, Any]]:
    """Predict which residues of chains touch: the pairs above a threshold among the L most probable ones.

    `i` and `j` count residues from 0. The score is that of the most probable pair, above the threshold or not.
    """
    threshold, size = options.get("threshold", CONTACT), batched(source, options)
    for start in range(0, len(inputs), size):
        chains = list(inputs[start : start + size])
        tokens = source.tokenizer(chains, return_tensors="pt", padding=len(chains) > 1)
        tokens.pop("token_type_ids", None)
        maps = source.model(**tokens.to(source.model.device)).logits.float().sigmoid().cpu().numpy()
        for chain, scores in zip(chains, maps, strict=True):
            pairs = np.stack(ranked_pairs(scores[: len(chain), : len(chain)]), 1)[: len(chain)].tolist()
            rows = [{"i": i, "j": j, "residues": chain[i] + chain[j], "score": float(scores[i, j])} for i, j in pairs]
            yield {"prediction": [row for row in rows if row["score"] >= threshold], "score": rows[0]["score"]}
