"""What a model holds: the same numbers give the same fingerprint wherever they lie, other numbers another."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import qkv
from published import change_tensors, ours, published, shards, stock
from qkv.scripts.common import inspector
from qkv.scripts.common.inspector import UNFILLED, Job, fingerprint, held, load_reported, outputs, ties
from qkv.scripts.publishing.integrity.loading import read_loaded, write_job

NUMBERS = torch.arange(12, dtype=torch.float32).view(3, 4)
ALIKE = [NUMBERS, NUMBERS.t().contiguous().t(), torch.stack((NUMBERS, -NUMBERS), -1)[..., 0], nn.Parameter(NUMBERS)]
UNLIKE = [
    NUMBERS, NUMBERS.view(4, 3), NUMBERS.flip(0), NUMBERS.int(), NUMBERS.view(torch.int32), NUMBERS.bfloat16(),
    NUMBERS.to(torch.complex64), torch.zeros(0), torch.zeros(()), -torch.zeros(()), torch.tensor(float("nan")),
    torch.tensor(False), NUMBERS.to("meta"),
]  # fmt: skip


@pytest.mark.parametrize("chunk", [5, 2**24])
def test_dtype_shape_and_every_bit_count_but_no_layout_in_memory(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fingerprint(NUMBERS)
    monkeypatch.setattr(inspector, "CHUNK", chunk)
    assert {fingerprint(each) for each in ALIKE} == {whole}
    assert len({fingerprint(each) for each in UNLIKE}) == len(UNLIKE)


class Small(nn.Module):
    """Everything that a model can compute with."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.other.weight = self.one.weight
        self.register_buffer("kept", torch.ones(1))
        self.register_buffer("lost", torch.ones(2), persistent=False)
        self.one.table = torch.ones(3, device="meta")


def test_nothing_that_a_model_computes_with_is_left_out() -> None:
    found = held(Small())
    assert {kind: list(entries) for kind, entries in found.items()} == {
        "parameter": ["one.weight", "other.weight"],
        "buffer": ["kept", "lost"],
        "attribute": ["one.table"],
    }
    assert found["attribute"]["one.table"] == f"float32[3] {UNFILLED}"
    assert ties(Small()) == {"other.weight": "one.weight"}


def test_a_load_tells_what_did_not_fit(tmp_path: Path) -> None:
    folder = published(ours(), tmp_path / "hub")
    model, report = load_reported(qkv.QkvDecoderForCausalLM, str(folder), {})
    assert not model.training and report["class"] == "QkvDecoderForCausalLM" and report["dtype"] == "float32"
    assert report["ties"] == {"lm_head.weight": "model.embed_tokens.weight"}
    assert report["keys"] == {"missing": [], "unexpected": [], "mismatched": []}
    assert report["loaded"] == held(ours())
    inputs = {"input_ids": torch.arange(8)[None] + 4}
    assert torch.equal(outputs(model, inputs)["logits"], outputs(ours(), inputs)["logits"])
    change_tensors(shards(folder)[-1], lambda tensors: tensors.update({"other": tensors.pop("model.norm.weight")}))
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model.norm.weight", "other"))
    keys = load_reported(qkv.QkvDecoderForCausalLM, str(folder), {})[1]["keys"]
    assert keys == {"missing": ["model.norm.weight"], "unexpected": ["other"], "mismatched": []}


def test_the_jobs_are_done_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, as if qkv were not there: the model is one of transformers."""
    folder, inputs = published(stock(), tmp_path / "hub"), {"input_ids": torch.arange(8)[None] + 4}
    job = Job(folder, "AutoModelForCausalLM", inputs, remote=False, fingerprints=True)
    jobs = [replace(job, again=True, timed=True), replace(job, options={"dtype": "bfloat16"})]
    folders = [write_job(each, tmp_path / str(index)) for index, each in enumerate(jobs)]
    monkeypatch.setattr(sys, "argv", ["inspector.py", "1", "", ""])
    with pytest.raises(RuntimeError, match="qkv was imported"):
        inspector.main()
    monkeypatch.delitem(sys.modules, "qkv")
    monkeypatch.setattr(sys, "argv", ["inspector.py", str(torch.get_num_threads()), "", "", *map(str, folders)])
    inspector.main()
    plain, low = map(read_loaded, folders)
    assert (plain.report["dtype"], low.report["dtype"]) == ("float32", "bfloat16") and plain.report["loaded"]["buffer"]
    assert plain.outputs and low.outputs and (folders[0] / "copy").is_dir() and plain.report["seconds"]["again"] > 0
    with pytest.raises(RuntimeError, match="was loaded with code from transformers"):
        inspector.do(replace(job, remote=True), folders[0])
    with pytest.raises(ModuleNotFoundError):
        __import__("qkv")
