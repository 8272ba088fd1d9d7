"""Every way of loading is gone and judged: tensors, keys, ties, class and answers. Fast: the judgement; slow: all ways."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import qkv
import tiny
from published import forge
from qkv.scripts.common.inspector import Job
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity import clean_process, load_paths
from qkv.scripts.publishing.integrity.clean_process import Loaded
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.load_paths import CLEAN, LoadChecks, load_rows, loaded
from qkv.scripts.publishing.integrity.manifest import read_manifest, write_manifest
from qkv.scripts.publishing.integrity.verification import examine

pytestmark = pytest.mark.upstream

PLAIN, ROUNDED = CLEAN[""], CLEAN[", bfloat16"]
INPUTS = {"input_ids": torch.arange(8)[None] + 4}
MINE = Path(__file__).parents[3] / "support" / "buffered_model.py"


@pytest.fixture
def good(folder: Path) -> Loaded:
    return loaded(qkv.QkvDecoderForCausalLM, folder, INPUTS)


def findings(folder: Path, found: Loaded, options: dict[str, str] = PLAIN, reference: Any = None) -> list[str]:
    return row(folder, found, options, reference or found.outputs).findings


def row(folder: Path, found: Loaded, options: dict[str, str], reference: Any) -> Row:
    return LoadChecks(folder, read_manifest(folder), reference=reference).row("way", found, options)


def changed(found: Loaded, part: str, **entries: Any) -> Loaded:
    return replace(found, report={**found.report, part: {**found.report[part], **entries}})


def test_a_right_load_passes(folder: Path, good: Loaded) -> None:
    right = row(folder, good, PLAIN, good.outputs)
    assert right.findings == [] and right.detail == "37 tensors equal, outputs equal bit by bit"
    low = loaded(qkv.QkvDecoderForCausalLM, folder, INPUTS, **ROUNDED)
    right = row(folder, low, ROUNDED, good.outputs)
    assert right.findings == [] and right.detail == "37 tensors equal, outputs finite"


def test_code_of_the_folder_may_differ_in_the_last_bits(folder: Path, good: Loaded) -> None:
    checks, logits = LoadChecks(folder, read_manifest(folder), reference=good.outputs), good.outputs["logits"]

    def judged(distance: float, tolerance: float) -> Row:
        moved = replace(good, outputs={**good.outputs, "logits": logits + distance * logits.abs().max().clamp(min=1)})
        return checks.row("way", moved, PLAIN, tolerance)

    assert judged(5e-6, 1e-5).findings == [] and judged(5e-6, 1e-5).detail.endswith("outputs equal to 1e-05")
    wrong = ["output logits differs from that of the first load"]
    assert judged(2e-5, 1e-5).findings == judged(5e-6, 0.0).findings == judged(float("nan"), 1e-5).findings == wrong


def test_whatever_is_wrong_is_named(folder: Path, good: Loaded) -> None:
    parameters = good.report["loaded"]["parameter"]
    lost = {name: each for name, each in parameters.items() if name != "model.norm.bias"}
    assert findings(folder, changed(good, "loaded", parameter=lost)) == ["parameter model.norm.bias is missing"]
    more = changed(good, "loaded", buffer={"angles": "float32[1] 0"})
    assert findings(folder, more) == ["buffer angles is not in the manifest"]
    wide = changed(good, "loaded", parameter={**parameters, "model.norm.bias": "float64[32] 0"})
    assert findings(folder, wide) == ["parameter model.norm.bias is float64[32], the manifest has float32[32]"]
    assert findings(folder, changed(good, "keys", missing=["a"], unexpected=["b"])) == [
        "missing tensor a",
        "unexpected tensor b",
    ]
    untied = replace(good, report={**good.report, "ties": {}})
    assert findings(folder, untied) == [
        "parameter lm_head.weight is tied to nothing, the manifest says model.embed_tokens.weight"
    ]


def test_another_class_is_named(folder: Path, good: Loaded) -> None:
    other = replace(good, report={**good.report, "class": "QkvDecoderModel"})
    assert findings(folder, other) == ["gives QkvDecoderModel, expected QkvDecoderForCausalLM"]


def test_a_weight_that_is_wrong_in_low_precision_is_named(folder: Path, good: Loaded) -> None:
    low = loaded(qkv.QkvDecoderForCausalLM, folder, INPUTS, **ROUNDED)
    parameters = low.report["loaded"]["parameter"] | {"model.norm.weight": f"bfloat16[32] {'0' * 64}"}
    assert findings(folder, changed(low, "loaded", parameter=parameters), ROUNDED) == [
        "parameter model.norm.weight has other content"
    ]


def test_other_outputs_are_named(folder: Path, good: Loaded) -> None:
    logits = good.outputs["logits"]
    other = logits.clone()
    other[0, 0, 0] = torch.nextafter(other[0, 0, 0], torch.tensor(9e9))
    line = "output logits differs from that of the first load"
    assert findings(folder, good, reference={"logits": other}) == [line]
    assert findings(folder, good, reference={"logits": logits, "loss": logits}) == [
        "output loss differs from that of the first load"
    ]
    low = loaded(qkv.QkvDecoderForCausalLM, folder, INPUTS, **ROUNDED)
    broken = Loaded(low.report, {"logits": logits / 0})
    assert findings(folder, broken, ROUNDED) == ["output logits is not finite"]


def test_a_load_that_fails_is_a_finding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise KeyError

    monkeypatch.setattr(load_paths, "loaded", fail)
    monkeypatch.setattr(clean_process, "load_in_clean_process", fail_elsewhere)
    rows = list(load_rows(folder, read_manifest(folder), trusted=True))
    assert len(rows) == 7 and all(row.findings for row in rows)
    assert rows[0].findings == ["does not load: KeyError"]
    assert rows[-1].check == "remote code, AutoModelForCausalLM"
    assert rows[-1].findings == ["does not load: no such luck"]


def fail_elsewhere(*arguments: Any) -> None:
    raise RuntimeError("no such\n luck")


def test_remote_code_is_judged_by_the_first_outputs(
    folder: Path, good: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(jobs: list[Job]) -> list[Loaded]:
        assert {job.auto_class for job in jobs} == {"AutoModelForCausalLM"} and all(job.remote for job in jobs)
        return [loaded(qkv.QkvDecoderForCausalLM, job.source, job.inputs, **job.options) for job in jobs]

    monkeypatch.setattr(clean_process, "load_in_clean_process", elsewhere)
    rows = [row for row in load_rows(folder, read_manifest(folder), trusted=True) if row.check.startswith("remote")]
    assert [row.check for row in rows] == [f"remote code, AutoModelForCausalLM{way}" for way in CLEAN]
    assert [row.findings for row in rows] == [[], [], []]


@pytest.mark.parametrize("case", tiny.HEADS, ids=lambda case: case.name)
def test_every_head_has_inputs(case: tiny.Case, tmp_path: Path) -> None:
    case.build().save_pretrained(tmp_path)
    inputs = load_paths.class_inputs(case.model_class, tmp_path)
    assert inputs and loaded(case.model_class, tmp_path, inputs).outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "DecoderForCausalLM-llama",
        "EncoderForPreTraining-bert",
        "EncoderDecoderForConditionalGeneration-t5",
        "PairForContactPrediction-esmfold",
        "PairForDistancePrediction-recycled",
        "PairForMaskedLM-evoformer",
        "PairForTokenClassification-esmfold",
    ],
)
def test_all_ways_give_one_model(name: str, tmp_path: Path) -> None:
    model = next(case for case in tiny.CASES if case.name == name).build()
    report = examine(build_folder(model, tmp_path / "hub"))
    assert report.passed, report.sentence
    assert len(report.rows) == 16 and not any(row.skipped for row in report.rows)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The folder of a model whose class only the folder has."""
    spec = importlib.util.spec_from_file_location("buffered_model", MINE)
    module = sys.modules["buffered_model"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.BufferedConfig()
    config.auto_map = {"AutoConfig": "modeling_mine.BufferedConfig", "AutoModel": "modeling_mine.BufferedModel"}
    model: PreTrainedModel = module.BufferedModel(config)
    model.save_pretrained(tmp_path / "mine")
    (tmp_path / "mine" / "modeling_mine.py").write_text(MINE.read_text())
    write_manifest(tmp_path / "mine", model)
    return tmp_path / "mine"


@pytest.mark.slow
def test_code_that_fills_a_buffer_wrongly_is_found(mine: Path) -> None:
    """The file hashes of the manifest are made to agree with it: only the buffer after loading tells."""
    report = examine(mine)
    assert report.passed and [row.check for row in report.rows if row.skipped] == ["class"]
    text = MINE.read_text()
    (mine / "modeling_mine.py").write_text(text.replace(".float()", ".float() + 1"))
    forge(mine)
    report = examine(mine)
    found = {row.check: row.findings for row in report.rows if row.findings}
    assert found.keys() == {
        "remote code, AutoModel",
        'remote code, AutoModel, device_map="cpu"',
        "remote code, AutoModel, bfloat16",
    }
    assert all(lines == ["buffer angles has other content"] for lines in found.values())
