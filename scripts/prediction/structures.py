"""Predict structures, for which transformers has no pipeline: a PDB file for each chain."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from qkv.scripts.common.files import write_atomically
from qkv.scripts.data.examples import InvalidRecord, Record
from qkv.scripts.prediction.generation import batched
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.protein_folding import ALPHA, check_protein, check_residue_tokens


def read_protein(value: Any, source: Source) -> str:
    """Return a chain; InvalidRecord where its letters are no amino acids, or more than the model reads."""
    check_residue_tokens(source.tokenizer)
    chain = check_protein(value)
    if len(chain) > (limit := source.most_tokens or len(chain)):
        raise InvalidRecord(f"{len(chain)} residues, of which the model reads {limit}; give it a part of them")
    return chain


@torch.no_grad()
def predict_structures(source: Source, inputs: Sequence[str], options: Options) -> Iterator[dict[str, Any]]:
    """Predict the structure of each chain as a PDB file with pLDDT in its B factors; the score is their mean at CA."""
    size = batched(source, options)
    for start in range(0, len(inputs), size):
        chains = list(inputs[start : start + size])
        tokens = source.tokenizer(chains, return_tensors="pt", padding=True, add_special_tokens=False)
        outputs = source.model(**tokens.to(source.model.device))
        files = source.model.to_pdb(outputs, tokens["input_ids"], tokens["attention_mask"])
        for chain, file, plddt, ptm in zip(chains, files, outputs.plddt, outputs.ptm.tolist(), strict=True):
            yield {"prediction": file, "score": float(plddt[: len(chain), ALPHA].mean()), "ptm": ptm}


def in_files(answers: Iterator[tuple[Any, Any]], folder: Path) -> Iterator[tuple[Any, Record | InvalidRecord]]:
    """Write each structure to a file, named by the number of its row, and yield its name in its place."""
    folder.mkdir()
    for number, (row, answer) in enumerate(answers, start=1):
        if isinstance(answer, dict):
            path = folder / f"{number}.pdb"
            write_atomically(path, answer["prediction"])
            answer["prediction"] = f"{folder.name}/{path.name}"
        yield row, answer
