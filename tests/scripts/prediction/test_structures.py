"""Structures of chains: those of the model, as files that are read back, from a run and from a published folder."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, EsmTokenizer

import own_runs
from errors import raises_sentence
from qkv.configuration.configuration_folding import RESIDUES
from qkv.scripts.cli import main
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.formats.readers import read_rows
from qkv.scripts.prediction.source import open_source
from qkv.scripts.prediction.structures import predict_structures, read_protein

Runs = Callable[[str], Path]
CHAINS = [row["sequence"] for row in own_runs.rows("proteins", 3, seed=1)]


def test_structures_are_those_of_the_model(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("proteins")
    source, model, tokenizer = open_source(str(run)), AutoModel.from_pretrained(run), AutoTokenizer.from_pretrained(run)
    for number, (chain, answer) in enumerate(zip(CHAINS, predict_structures(source, CHAINS, {}), strict=True)):
        with torch.no_grad():
            outputs = model(**tokenizer(chain, return_tensors="pt"))
        path = tmp_path / f"{number}.pdb"
        path.write_text(answer["prediction"])
        ((_, row),) = read_rows(path)
        assert row["sequence"] == chain
        for positions, atoms in zip(outputs.positions[0].tolist(), json.loads(row["coordinates"]), strict=True):
            assert np.allclose(positions[: len(atoms)], atoms, atol=0.002)
        assert answer["score"] == pytest.approx(float(outputs.plddt[0, :, 1].mean()), abs=1e-4)
        assert answer["ptm"] == pytest.approx(float(outputs.ptm[0]), abs=1e-4)


def test_tokenizers_of_esmfold_do(run_of: Runs, tmp_path: Path) -> None:
    """The vocabulary that ESMFold comes with, whose tokenizer puts other tokens around a chain."""
    run, vocabulary = run_of("proteins"), [*RESIDUES, "<pad>", "<mask>", "<cls>", "<eos>", "<unk>"]
    shutil.copytree(run, tmp_path / "esm", ignore=shutil.ignore_patterns("token*", "record.json", "checkpoints"))
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    EsmTokenizer(tmp_path / "vocab.txt").save_pretrained(tmp_path / "esm")
    sources = [open_source(str(folder)) for folder in (run, tmp_path / "esm")]
    one, other = (list(predict_structures(source, CHAINS, {})) for source in sources)
    assert [each["prediction"] for each in one] == [each["prediction"] for each in other]
    assert list(map(read_protein, CHAINS, sources[1:] * 3)) == CHAINS


def test_each_row_has_its_file(run_of: Runs, tmp_path: Path) -> None:
    table = own_runs.data("proteins", tmp_path, 3, seed=1)
    command = ["predict", str(run_of("proteins")), str(table), "--out", str(tmp_path / "out.csv")]
    assert main(command) == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["prediction"] for row in rows] == ["out/1.pdb", "out/2.pdb", "out/3.pdb"]
    assert [row["sequence"] for row in rows] == CHAINS
    assert [next(read_rows(tmp_path / row["prediction"]))[1]["sequence"] for row in rows] == CHAINS
    assert main(command) == 1  # the folder is there, and nothing in it is written over


@pytest.mark.parametrize(
    ("value", "reason"), [("AG L", "a space"), (None, "missing"), ("agl", "'agl'"), ("AG" * 200, "400 residues")]
)
def test_what_is_no_protein_is_told(value: Any, reason: str, run_of: Runs) -> None:
    source = open_source(str(run_of("proteins")))
    with pytest.raises(InvalidRecord) as caught:
        read_protein(value, source)
    assert reason in str(caught.value)
    source.tokenizer = type("Tokens", (), {"convert_tokens_to_ids": lambda self, tokens: [5] * len(tokens)})()
    with raises_sentence("tokenizer", "text.tokenizer=residues"):
        read_protein("AG", source)
