"""Every corruption is found, with its name, on files, on loading and by QKV_VERIFY=1, and an untouched folder passes."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

import qkv
import tiny
from errors import raises_sentence
from published import CODE, age, change_json, change_tensors, forge, ours, published, shards, stock
from qkv import QkvDecoderForCausalLM
from qkv.scripts.common.inspector import Job
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.export.tested_releases import TESTED
from qkv.scripts.publishing.integrity import clean_process, guard, load_paths
from qkv.scripts.publishing.integrity import verification as module
from qkv.scripts.publishing.integrity.clean_process import Loaded, clean_environment, load_in_clean_process
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.load_paths import compared, load_rows, loaded
from qkv.scripts.publishing.integrity.loading import auto_class, installed_class
from qkv.scripts.publishing.integrity.manifest import IntegrityError, identity, read_manifest, write_manifest
from qkv.scripts.publishing.integrity.verification import Report, checks, examine, verify

pytestmark = pytest.mark.upstream

INDEX = "model.safetensors.index.json"
# Two weights of one shape, in one file.
ONE, OTHER = "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.q_proj.weight"
INPUTS = {"input_ids": torch.arange(8)[None] + 4}
MINE = Path(__file__).parents[2] / "support" / "buffered_model.py"


def holding(folder: Path, *names: str) -> Path:
    """The shard that holds these tensors."""
    for path in shards(folder):
        with safe_open(path, framework="pt") as file:
            if set(names) <= set(file.keys()):
                return path
    raise AssertionError(f"{names} are not in one shard")


def flip_bit(path: Path, offset: int = -4) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def swap(folder: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors[ONE], tensors[OTHER] = tensors[OTHER], tensors[ONE]

    change_tensors(holding(folder, ONE, OTHER), change)


def leave_weights(folder: Path) -> None:
    """The rest of a save in one file under a later one in shards: transformers would load it, silently."""
    model = ours(seed=1)
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")


def add_shard(folder: Path) -> None:
    save_file({"spare": ours().model.norm.weight.detach()}, folder / "model-00009-of-00009.safetensors")


def point_elsewhere(folder: Path) -> None:
    file = holding(folder, ONE).name
    other = next(path.name for path in shards(folder) if path.name != file)
    text = (folder / INDEX).read_text()
    (folder / INDEX).write_text(text.replace(f'"{ONE}": "{file}"', f'"{ONE}": "{other}"'))


def name_a_kernel(folder: Path) -> None:
    """Whoever publishes such a config can also write its manifest."""
    change_json(folder / "config.json", attn_implementation="evil/kernel")
    forge(folder)


CORRUPTIONS: list[tuple[Callable[[Path], Any], tuple[str, ...]]] = [
    (lambda folder: flip_bit(shards(folder)[-1]), ("{last}", "tensor")),
    (lambda folder: flip_bit(shards(folder)[0], 0), ("{first}", "damaged")),
    (swap, (ONE, OTHER)),
    (lambda folder: shards(folder)[0].unlink(), ("{first} is missing",)),
    (lambda folder: shards(folder)[0].write_bytes(shards(folder)[0].read_bytes()[:-7]), ("{first}", "damaged")),
    (leave_weights, ("model.safetensors is not",)),
    (add_shard, ("model-00009-of-00009.safetensors",)),
    (point_elsewhere, (INDEX,)),
    (name_a_kernel, ("config", "evil/kernel")),
    (lambda folder: (folder / "qkv_manifest.json").unlink(), ("qkv_manifest.json",)),
]


@pytest.mark.parametrize(("corrupt", "words"), CORRUPTIONS)
def test_a_corruption_is_named_and_not_loaded(
    corrupt: Callable[[Path], None], words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"first": shards(folder)[0].name, "last": shards(folder)[-1].name}
    corrupt(folder)
    monkeypatch.setattr(module, "load_rows", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(IntegrityError) as caught:
        verify(folder)
    assert all(word.format(**names) in str(caught.value) for word in words)
    monkeypatch.setenv("QKV_VERIFY", "1")
    with pytest.raises((IntegrityError, ValueError)):
        QkvDecoderForCausalLM.from_pretrained(folder)


def test_an_untouched_folder_passes(folder: Path) -> None:
    """By the ways of loading in this process; the other process: tests/scripts/test_verify.py."""
    rows = list(checks(folder, None, trusted=False))
    assert [row for row in rows if row.findings] == []
    assert [row.check for row in rows if row.skipped] == ["remote code, AutoModelForCausalLM"]


def test_a_wrong_buffer_after_loading_is_named(native: Path, tmp_path: Path) -> None:
    """The config is edited, and the manifest's hashes of files with it: only loading tells."""
    folder = Path(shutil.copytree(native, tmp_path / "hub"))
    change_json(folder / "config.json", rope_parameters={"rope_theta": 20000.0, "rope_type": "default"})
    forge(folder)
    rows = {row.check: row for row in load_rows(folder, read_manifest(folder), trusted=False)}
    assert any("model.rotary_emb.inv_freq" in line for line in rows["AutoModelForCausalLM"].findings)


def test_swapped_weights_under_a_forged_manifest_are_named(folder: Path) -> None:
    swap(folder)
    forge(folder)
    (row, *_) = load_rows(folder, read_manifest(folder), trusted=False)
    assert [line.split()[1] for line in row.findings if line.startswith("parameter")] == [ONE, OTHER]


def test_another_model_than_expected_is_named(original: Path, tmp_path: Path) -> None:
    other = published(ours(seed=1), tmp_path / "other", **{CODE: "x = 0\n"})
    with pytest.raises(IntegrityError, match=identity(original)):
        verify(other, expect=identity(original))
    with pytest.raises(IntegrityError, match="expected model: .*parameter "):
        verify(other, expect=original)
    for wrong in ("123", "no/where", identity(original).upper()):
        with pytest.raises(ValueError, match=wrong):
            verify(original, expect=wrong)
    with pytest.raises(ValueError, match="revision"):
        verify(original, revision="main")


def test_the_expected_model_may_have_another_card_and_other_shards(original: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    ours().save_pretrained(again)
    for name, text in {CODE: "x = 1\n", "vocab.txt": "a\nb\n", "README.md": "another\n"}.items():
        (again / name).write_text(text)
    write_manifest(again)
    for expect in (original, identity(original), identity(original)[:16]):
        rows = {row.check: row.result for row in checks(again, expect, trusted=False)}
        assert rows["expected model"] == "passed"
    (again / CODE).write_text("x = 0\n")
    write_manifest(again)
    findings = next(row.findings for row in checks(again, original, trusted=False) if row.check == "expected model")
    assert len(findings) == 1 and CODE in findings[0]


def test_code_of_a_repository_runs_only_where_somebody_answers_for_it(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_rows(folder: Path, manifest: Any, *, trusted: bool) -> list[Row]:
        return [Row("remote code", skipped=not trusted)]

    monkeypatch.setattr(module, "fetch", lambda name, revision: original)
    monkeypatch.setattr(module, "load_rows", load_rows)
    for target, options, trusted in (
        ("user/name", {}, False),
        ("user/name", {"revision": "v1"}, False),
        ("user/name", {"trust_remote_code": True}, True),
        ("user/name", {"expect": identity(original)}, True),
        (original, {}, True),
    ):
        report = verify(target, **options)
        assert report.rows[-1].skipped != trusted
        assert report.commit == (None if target is original else original.name)


def test_the_verdict_is_one_sentence_with_all_names() -> None:
    assert qkv.verify is verify and qkv.IntegrityError is IntegrityError
    report = Report("user/name", "0" * 40, [Row("code", skipped=True)], "1" * 64)
    assert report.passed and all(word in report.sentence for word in ("user/name", "0" * 40, "1" * 64, "code"))
    report = Report("mine", None, [Row("files", list("abcdef")), Row("code", ["g"])])
    assert not report.passed and "a, b, c, d, and 2 more; code: g" in report.sentence
    results = [Row("a").result, Row("a", ["b"]).result, Row("a", skipped=True).result, Row("a", warns=True).result]
    assert results == ["passed", "FAILED", "not run", "warning"]


def test_code_tested_with_older_releases_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = qkv.publish(ours(), tmp_path / "hub").folder
    monkeypatch.setattr(module, "load_rows", lambda *_, **__: [])
    monkeypatch.setattr(transformers, "__version__", f"{TESTED['newest']}.0")
    rows = {row.check: row.result for row in verify(folder).rows}
    assert rows["tested releases"] == "passed"
    age(folder)
    report = verify(folder)
    (row,) = (row for row in report.rows if row.warns)
    assert row.result == "warning" and row.detail in report.sentence and f"qkv publish {folder} " in row.detail
    assert not any(row.check == "tested releases" for row in verify(published(stock(), tmp_path / "stock")).rows)


@pytest.mark.parametrize("loader", [QkvDecoderForCausalLM, AutoModelForCausalLM, AutoModel])
def test_loading_refuses_files_that_differ_where_it_is_asked_to(
    loader: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_VERIFY", "1")
    assert loader.from_pretrained(folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    loader.from_pretrained(folder.parent, subfolder="hub")
    published(ours(), folder.parent / "again")  # it loads a folder that has no manifest yet
    assert isinstance(qkv.from_transformers(qkv.to_transformers(ours())), QkvDecoderForCausalLM)
    change_json(folder / "config.json", norm_eps=0.5)
    for source, inner in ((folder, {}), (folder.parent, {"subfolder": "hub"})):
        with pytest.raises(IntegrityError, match="config.json"):
            loader.from_pretrained(source, **inner)
    monkeypatch.setenv("QKV_VERIFY", "off")
    loader.from_pretrained(folder)


def test_a_repository_is_loaded_at_the_commit_that_was_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(name: str, revision: str | None, **options: Any) -> Path:
        asked.append((name, revision, options))
        return folder

    monkeypatch.setattr(guard, "fetch", fetch)
    options = {"revision": "v1", "token": "t", "dtype": "auto"}
    assert guard.checked("user/name", options) == {**options, "revision": folder.name}
    assert asked == [("user/name", "v1", {"token": "t"})]
    flip_bit(shards(folder)[0])
    with pytest.raises(IntegrityError, match=shards(folder)[0].name):
        guard.checked("user/name", options)


def changed(found: Loaded, part: str, **entries: Any) -> Loaded:
    return replace(found, report={**found.report, part: {**found.report[part], **entries}})


def test_whatever_is_wrong_after_loading_is_named(folder: Path) -> None:
    good, manifest = loaded(QkvDecoderForCausalLM, folder, INPUTS), read_manifest(folder)
    parameters, logits = good.report["loaded"]["parameter"], good.outputs["logits"]
    other = logits.clone()
    other[0, 0, 0] = torch.nextafter(other[0, 0, 0], torch.tensor(9e9))
    lost = {name: each for name, each in parameters.items() if name != "model.norm.bias"}
    wide = {**parameters, "model.norm.bias": f"float64[32] {'0' * 64}"}
    wrong = {
        "model.norm.bias": changed(good, "loaded", parameter=lost),
        "angles": changed(good, "loaded", buffer={"angles": "float32[1] 0"}),
        "float64[32]": changed(good, "loaded", parameter=wide),
        "missing tensor a": changed(good, "keys", missing=["a"]),
        "unexpected tensor b": changed(good, "keys", unexpected=["b"]),
        "lm_head.weight": replace(good, report={**good.report, "ties": {}}),
        "QkvDecoderModel": replace(good, report={**good.report, "class": "QkvDecoderModel"}),
        "output logits": replace(good, outputs={"logits": other}),
        "output loss": replace(good, outputs={**good.outputs, "loss": logits}),
    }
    assert compared("way", good, manifest, good.outputs).findings == []
    for name, found in wrong.items():
        (line,) = compared("way", found, manifest, {"logits": logits}).findings
        assert name in line
    for distance, tolerance, passes in ((5e-6, 1e-5, True), (2e-5, 1e-5, False), (5e-6, 0.0, False)):
        moved = replace(good, outputs={"logits": logits + distance * logits.abs().max().clamp(min=1)})
        assert (compared("way", moved, manifest, {"logits": logits}, tolerance).findings == []) == passes


def test_a_load_that_fails_is_a_finding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no such\n luck")

    monkeypatch.setattr(load_paths, "loaded", fail)
    monkeypatch.setattr(load_paths, "load_in_clean_process", fail)
    rows = list(load_rows(folder, read_manifest(folder), trusted=True))
    assert len(rows) == 2 and all("no such luck" in row.findings[0] for row in rows)


@pytest.mark.parametrize("case", tiny.HEADS, ids=lambda case: case.name)
def test_every_head_has_inputs(case: tiny.Case, tmp_path: Path) -> None:
    case.build().save_pretrained(tmp_path)
    inputs = load_paths.class_inputs(case.model_class, tmp_path)
    assert inputs and loaded(case.model_class, tmp_path, inputs).outputs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DecoderForCausalLM-llama", "EncoderDecoderForConditionalGeneration-t5"])
def test_all_ways_give_one_model(name: str, tmp_path: Path) -> None:
    model = next(case for case in tiny.CASES if case.name == name).build()
    report = examine(build_folder(model, tmp_path / "hub"))
    assert report.passed and not any(row.skipped for row in report.rows), report.sentence


@pytest.mark.slow
def test_code_that_fills_a_buffer_wrongly_is_found(tmp_path: Path) -> None:
    """The class is the folder's alone; the manifest's hashes agree with its code, and the buffer after loading tells."""
    spec = importlib.util.spec_from_file_location("buffered_model", MINE)
    mine = sys.modules["buffered_model"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    config, folder = mine.BufferedConfig(), tmp_path / "mine"
    config.auto_map = {"AutoConfig": "modeling_mine.BufferedConfig", "AutoModel": "modeling_mine.BufferedModel"}
    model: PreTrainedModel = mine.BufferedModel(config)
    model.save_pretrained(folder)
    (folder / "modeling_mine.py").write_text(MINE.read_text())
    write_manifest(folder, model)
    report = examine(folder)
    assert report.passed and [row.check for row in report.rows if row.skipped] == ["AutoModel"]
    (folder / "modeling_mine.py").write_text(MINE.read_text().replace(".float()", ".float() + 1"))
    forge(folder)
    found = {row.check: row.findings for row in examine(folder).rows if row.findings}
    assert found.keys() == {"remote code, AutoModel"} and "buffer angles" in found["remote code, AutoModel"][0]


@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_every_head_of_ours_has_its_auto_class(case: tiny.Case, tmp_path: Path) -> None:
    config, name = case.config(), case.model_class.__name__
    config.architectures = [name]
    config.save_pretrained(tmp_path)
    assert installed_class(tmp_path) is case.model_class and auto_class(config.to_dict(), name) == case.auto_class


@pytest.mark.parametrize(
    ("model_type", "architecture", "expected"),
    [
        ("gpt2", "GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("t5", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
        ("deit", "DeiTForImageClassificationWithTeacher", "AutoModelForImageClassification"),
        ("bert", "BertForPreTraining", "AutoModelForPreTraining"),
        ("bert", "BertForNextSentencePrediction", "AutoModelForNextSentencePrediction"),
        ("bert", "BertModel", "AutoModel"),
        ("mine", "Mine", None),
    ],
)
def test_so_have_stock_models(model_type: str, architecture: str, expected: str | None, tmp_path: Path) -> None:
    config = {"model_type": model_type, "architectures": [architecture]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert auto_class(config, architecture) == expected
    assert installed_class(tmp_path) is getattr(transformers, architecture, None)
    assert auto_class({**config, "auto_map": {"AutoModel": f"x.{architecture}"}}, architecture) == "AutoModel"


def test_the_clean_process_sees_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the real program loads a model with it: tests/scripts/test_verify.py."""
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("HF_HUB_CACHE", "/ours")
    found = clean_environment(tmp_path)
    assert "PYTHONPATH" not in found and "HF_HUB_CACHE" not in found and found["HF_HUB_OFFLINE"] == "1"
    echo = tmp_path / "echo.py"
    echo.write_text(
        "import pathlib, shutil, sys\nfor folder in map(pathlib.Path, sys.argv[4:]):\n"
        "    shutil.copy(folder / 'job.json', folder / 'report.json')\n"
        "    shutil.copy(folder / 'inputs', folder / 'outputs') if (folder / 'inputs').exists() else None"
    )
    monkeypatch.setattr(clean_process, "PROGRAM", echo)
    monkeypatch.chdir(tmp_path)
    inputs = {"x": torch.ones(2, 3).t()}
    full = Job(Path("hub"), "AutoModel", inputs, "main", {"dtype": "bfloat16"}, pipeline="t", example=Path("a.png"))
    first, second = load_in_clean_process([full, Job("alice/x", "AutoModel", remote=False)])
    assert torch.equal(first.outputs["x"], inputs["x"]) and second.outputs == {}
    places = {"source": str(tmp_path / "hub"), "example": str(tmp_path / "a.png"), "inputs": None}
    assert first.report == vars(full) | places
    echo.write_text("raise SystemExit('no such luck')")
    with raises_sentence("no such luck", error=RuntimeError):
        load_in_clean_process([])
