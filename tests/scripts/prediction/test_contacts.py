"""Contacts of chains: those of the model pair by pair, from a run and a published folder; odd chains are told by row."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import own_runs
from qkv.scripts.cli import main
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.contacts import predict_contacts, read_chain
from qkv.scripts.prediction.source import open_source

Runs = Callable[[str], Path]
CHAINS = [row["sequence"] for row in own_runs.rows("folds", 6, seed=1)]
each_kind = pytest.mark.parametrize("kind", ["folds", "encoder-folds"])


@each_kind
def test_contacts_are_those_of_the_model(kind: str, run_of: Runs) -> None:
    run = run_of(kind)
    source, model, tokenizer = open_source(str(run)), AutoModel.from_pretrained(run), AutoTokenizer.from_pretrained(run)
    answers = list(predict_contacts(source, CHAINS, {"threshold": 0, "batch_size": 4}))
    for chain, answer in zip(CHAINS, answers, strict=True):
        with torch.no_grad():
            scores = model(**tokenizer(chain, return_tensors="pt")).logits[0].sigmoid()
        assert scores.shape == (len(chain), len(chain))
        pairs = [(float(scores[i, j]), i, j) for i in range(len(chain)) for j in range(i + 3, len(chain))]
        best = sorted((score for score, _, _ in pairs), reverse=True)[: len(chain)]
        assert [row["score"] for row in answer["prediction"]] == pytest.approx(best, abs=6e-5)
        for row in answer["prediction"]:
            i, j = row["i"], row["j"]
            assert row["residues"] == chain[i] + chain[j]
            assert row["score"] == pytest.approx(float(scores[i, j]), abs=6e-5)
        assert answer["score"] == pytest.approx(best[0], rel=1e-4)
    threshold = answers[0]["prediction"][2]["score"] - 1e-4
    alone = list(predict_contacts(source, CHAINS, {"batch_size": 1, "threshold": threshold}))
    kept = [row["score"] for row in answers[0]["prediction"] if row["score"] > threshold]
    assert [row["score"] for row in alone[0]["prediction"]][:3] == pytest.approx(kept[:3], abs=1e-4)
    assert [answer["score"] for answer in alone] == pytest.approx([answer["score"] for answer in answers], rel=1e-4)


@pytest.mark.parametrize("kind", ["folds", "encoder-folds", "proteins"])
def test_a_published_folder_is_evaluated_as_its_run(kind: str, run_of: Runs, tmp_path: Path) -> None:
    run, table = run_of(kind), own_runs.data(kind, tmp_path, 6, seed=1)
    shutil.copytree(run, tmp_path / "published", ignore=shutil.ignore_patterns("record.json", "checkpoints"))
    words = [str(tmp_path / "published"), str(table), "resamples=20", "--trust-remote-code", "--against", str(run)]
    assert main(["evaluate", *words, "--out", str(tmp_path / "out")]) == 0
    facts = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert facts["metrics"].keys() == json.loads((run / "record.json").read_text())["metrics"]["test"].keys()
    assert {own["value"] for own in facts["against"]["differences"].values()} == {0}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("GGG AAACCC", "a space within the chain"),
        (None, "missing"),
        ("GCU", "3 residues, of which no two are 3 apart"),
        ("GAUC" * 20, "80 residues, of which the model reads {most}"),
        ("mktf", "'mktf' has no residue"),
    ],
)
@each_kind
def test_what_is_no_chain_is_told(kind: str, value: Any, reason: str, run_of: Runs) -> None:
    source = open_source(str(run_of(kind)))
    with pytest.raises(InvalidRecord) as caught:
        read_chain(value, source)
    most = AutoTokenizer.from_pretrained(run_of(kind)).model_max_length
    assert reason.format(most=most - 2 * ("encoder" in kind)) in str(caught.value)


def test_a_chain_is_a_token_for_each_residue(run_of: Runs) -> None:
    source = open_source(str(run_of("folds")))
    source.tokenizer = lambda chain, verbose: {"input_ids": [7, 8]}
    with pytest.raises(InvalidRecord, match="one for each residue"):
        read_chain("GGGAAACCC", source)


def test_an_alignment_is_refused(run_of: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.a3m").write_text(">a\nGGGAAACCC\n>b\nGG-AAA-CC\n")
    assert main(["predict", str(run_of("folds")), str(tmp_path / "a.a3m")]) == 1
    assert "a.a3m" in capsys.readouterr().err
