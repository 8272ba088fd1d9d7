"""Every corruption is found, with its name, on files, on loading and by QKV_VERIFY=1, and an untouched folder passes."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM

import qkv
import tiny
from errors import raises_sentence
from published import CODE, age, change_json, change_tensors, flip, forge, ours, published, shards
from qkv import QkvDecoderForCausalLM
from qkv.scripts.common.inspector import Job
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.export.tested_releases import TESTED
from qkv.scripts.publishing.integrity import loading
from qkv.scripts.publishing.integrity import verification as module
from qkv.scripts.publishing.integrity.loading import Loaded, auto_class, installed_class
from qkv.scripts.publishing.integrity.manifest import IntegrityError, Row, identity, read_manifest, write_manifest
from qkv.scripts.publishing.integrity.verification import (
    checked,
    checks,
    class_inputs,
    compared,
    examine,
    load_rows,
    loaded,
    verify,
)

pytestmark = pytest.mark.upstream

INDEX = "model.safetensors.index.json"
# Two weights of one shape, in one file.
ONE, OTHER = "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.q_proj.weight"
INPUTS = {"input_ids": torch.arange(8)[None] + 4}


def holding(folder: Path, *names: str) -> Path:
    """The shard that holds these tensors."""
    for path in shards(folder):
        with safe_open(path, framework="pt") as file:
            if set(names) <= set(file.keys()):
                return path
    raise AssertionError(f"{names} are not in one shard")


def swap(folder: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors[ONE], tensors[OTHER] = tensors[OTHER], tensors[ONE]

    change_tensors(holding(folder, ONE, OTHER), change)


def leave_weights(folder: Path) -> None:
    """The rest of a save in one file under a later one in shards: transformers would load it, silently."""
    model = ours(seed=1)
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")


def name_a_kernel(folder: Path) -> None:
    """Whoever publishes such a config can also write its manifest."""
    change_json(folder / "config.json", attn_implementation="evil/kernel")
    forge(folder)


CORRUPTIONS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: flip(shards(folder)[-1]), "{last} has"),
    (swap, "model-0000"),
    (lambda folder: shards(folder)[0].unlink(), "{first} is missing"),
    (leave_weights, "model.safetensors is not"),
    (lambda folder: (folder / "vocab.txt").write_text("a\nc\n"), "vocab.txt"),
    (lambda folder: (folder / "adapter_config.json").touch(), "adapter_config.json"),
    (lambda folder: (folder / "sitecustomize.py").touch(), "sitecustomize.py"),
    (lambda folder: (folder / "README.md").unlink(), "README.md"),
    # Loading reads chat templates through it, which no hash in the manifest is of.
    (lambda folder: (folder / "chat").symlink_to(folder.parent), "chat"),
    (lambda folder: change_json(folder / INDEX, weight_map={}), INDEX),
    (name_a_kernel, "evil/kernel"),
    (lambda folder: (folder / "qkv_manifest.json").unlink(), "qkv_manifest.json"),
]


@pytest.mark.parametrize(("corrupt", "word"), CORRUPTIONS)
def test_a_corruption_is_named_and_not_loaded(
    corrupt: Callable[[Path], None], word: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"first": shards(folder)[0].name, "last": shards(folder)[-1].name}
    corrupt(folder)
    monkeypatch.setattr(module, "load_rows", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(IntegrityError, match=word.format(**names)):
        verify(folder)
    monkeypatch.setenv("QKV_VERIFY", "1")
    with pytest.raises((IntegrityError, ValueError)):
        QkvDecoderForCausalLM.from_pretrained(folder)


def test_loading_tells_of_a_wrong_buffer_and_of_swapped_weights(folder: Path, native: Path, tmp_path: Path) -> None:
    """The manifest's hashes of files are forged."""
    swap(folder)
    stock = Path(shutil.copytree(native, tmp_path / "stock"))
    change_json(stock / "config.json", rope_parameters={"rope_theta": 20000.0, "rope_type": "default"})
    found = []
    for each in (folder, stock):
        forge(each)
        (row, *_) = load_rows(each, read_manifest(each), trusted=False)
        found.append([line.split()[1] for line in row.findings if line.startswith(("parameter", "buffer"))])
    assert found[0] == [ONE, OTHER] and "model.rotary_emb.inv_freq" in found[1]


def test_another_model_than_expected_is_named(original: Path, tmp_path: Path) -> None:
    other = published(ours(seed=1), tmp_path / "other", **{CODE: "x = 0\n"})
    with pytest.raises(IntegrityError, match=identity(original)):
        verify(other, expect=identity(original))
    with pytest.raises(IntegrityError, match="expected model: .*parameter "):
        verify(other, expect=original)
    for options in ({"expect": "123"}, {"expect": identity(original).upper()}, {"revision": "main"}):
        with pytest.raises(ValueError, match=next(iter(options.values()))):
            verify(original, **options)


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
    monkeypatch.setattr(module, "fetch", lambda name, revision: original)
    monkeypatch.setattr(module, "load_rows", lambda *_, trusted: [Row("remote code", skipped=not trusted)])
    for target, options, trusted in (
        ("user/name", {"revision": "v1"}, False),
        ("user/name", {"trust_remote_code": True}, True),
        ("user/name", {"expect": identity(original)}, True),
        (original, {}, True),
    ):
        report = verify(target, **options)
        assert report.rows[-1].skipped != trusted
        assert report.commit == (None if target is original else original.name)


def test_code_tested_with_older_releases_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = qkv.publish(ours(), tmp_path / "hub").folder
    monkeypatch.setattr(module, "load_rows", lambda *_, **__: [])
    monkeypatch.setattr(transformers, "__version__", f"{TESTED['newest']}.0")
    assert {row.check: row.result for row in verify(folder).rows}["tested releases"] == "passed"
    age(folder)
    report = verify(folder)
    (row,) = (row for row in report.rows if row.warns)
    assert row.result == "warning" and row.detail in report.sentence and f"qkv publish {folder} " in row.detail


@pytest.mark.parametrize("loader", [QkvDecoderForCausalLM, AutoModelForCausalLM, AutoModel])
def test_loading_refuses_files_that_differ_where_it_is_asked_to(
    loader: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_VERIFY", "1")
    assert loader.from_pretrained(folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    for name in ("NOTES.md", ".gitattributes"):  # a manifest lists no such files
        (folder / name).touch()
    loader.from_pretrained(folder.parent, subfolder="hub")
    published(ours(), folder.parent / "again")  # it loads a folder that has no manifest yet
    assert isinstance(qkv.from_transformers(qkv.to_transformers(ours())), QkvDecoderForCausalLM)
    change_json(folder / "config.json", norm_eps=0.5)
    for source, inner in ((folder, {}), (folder.parent, {"subfolder": "hub"})):
        with pytest.raises(IntegrityError, match="config.json"):
            loader.from_pretrained(source, **inner)
    for word in ("", "0", "False", "no", "off"):
        monkeypatch.setenv("QKV_VERIFY", word)
        loader.from_pretrained(folder)


def test_a_repository_is_loaded_at_the_commit_that_was_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "fetch", lambda *given, **options: (asked.append((*given, options)), folder)[1])
    options = {"revision": "v1", "token": "t", "dtype": "auto"}
    assert checked("user/name", options) == {**options, "revision": folder.name}
    assert asked == [("user/name", "v1", {"token": "t"})]
    flip(shards(folder)[0])
    with pytest.raises(IntegrityError, match=shards(folder)[0].name):
        checked("user/name", options)


def test_differences_after_loading_are_named(folder: Path) -> None:
    good, manifest = loaded(QkvDecoderForCausalLM, folder, INPUTS), read_manifest(folder)
    parameters, logits = good.report["loaded"]["parameter"], good.outputs["logits"]
    other = logits.clone()
    other[0, 0, 0] = torch.nextafter(other[0, 0, 0], torch.tensor(9e9))

    def changed(part: str, **entries: Any) -> Loaded:
        return replace(good, report={**good.report, part: {**good.report[part], **entries}})

    wrong = {
        "model.norm.bias": changed("loaded", parameter={k: v for k, v in parameters.items() if k != "model.norm.bias"}),
        "angles": changed("loaded", buffer={"angles": "float32[1] 0"}),
        "float64[32]": changed("loaded", parameter={**parameters, "model.norm.bias": f"float64[32] {'0' * 64}"}),
        "missing tensor a": changed("keys", missing=["a"]),
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

    for name in ("loaded", "load_in_clean_process"):
        monkeypatch.setattr(module, name, fail)
    rows = list(load_rows(folder, read_manifest(folder), trusted=True))
    assert len(rows) == 2 and all("no such luck" in row.findings[0] for row in rows)


def test_the_code_of_a_folder_is_compared_with_its_manifest_and_the_first_load(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, manifest = class_inputs(QkvDecoderForCausalLM, folder), read_manifest(folder)
    good = loaded(QkvDecoderForCausalLM, folder, inputs)
    logits, tensors = good.outputs["logits"], good.report["loaded"]
    moved = replace(good, outputs={"logits": logits + 5e-6 * logits.abs().max().clamp(min=1)})
    forged = replace(good, report={**good.report, "loaded": {**tensors, "buffer": {"angles": "float32[1] 0"}}})
    jobs: list[Job] = []
    older = {**manifest, "versions": {**manifest["versions"], "qkv": "0.0.1"}}
    for result, described, word in (
        (good, manifest, ""), (moved, manifest, "logits"), (forged, manifest, "angles"), (moved, older, ""),
    ):  # fmt: skip
        monkeypatch.setattr(module, "load_in_clean_process", lambda given, made=result: (jobs.extend(given), [made])[1])
        first, second = load_rows(folder, described, trusted=True)
        assert first.findings == [] and jobs[-1].remote and jobs[-1].fingerprints
        assert bool(second.findings) == bool(word) and all(word in line for line in second.findings)
    monkeypatch.setattr(module, "installed_class", lambda folder: None)  # a class that only the folder has
    assert [row.skipped for row in load_rows(folder, manifest, trusted=True)] == [True, False]


@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
@pytest.mark.costly(18)
def test_every_head_has_its_auto_class_and_inputs(case: tiny.Case, tmp_path: Path) -> None:
    config, name = case.config(), case.model_class.__name__
    config.architectures = [name]
    config.save_pretrained(tmp_path)
    assert installed_class(tmp_path) is case.model_class and auto_class(config.to_dict(), name) == case.auto_class
    assert class_inputs(case.model_class, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DecoderForCausalLM-llama", "EncoderDecoderForConditionalGeneration-t5"])
def test_all_ways_give_one_model(name: str, tmp_path: Path) -> None:
    model = next(case for case in tiny.CASES if case.name == name).build()
    report = examine(folder := build_folder(model, tmp_path / "hub"))
    assert report.passed and not any(row.skipped for row in report.rows), report.sentence
    (code,) = folder.glob("modeling_*.py")
    code.write_text(code.read_text() + "\nRMSNorm.forward = lambda self, hidden: hidden\n")
    forge(folder)
    (row,) = (row for row in examine(folder).rows if row.findings)
    assert row.check.startswith("remote code") and "output logits" in " ".join(row.findings)


def test_the_clean_process_sees_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the real program loads a model with it: tests/scripts/test_verify.py."""
    for name in ("PYTHONPATH", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, "/ours")
    found = loading.clean_environment(tmp_path)
    assert "/ours" not in found.values() and found["HF_HUB_OFFLINE"] == "1"
    monkeypatch.chdir(tmp_path)  # the process has another working directory
    job = loading.write_job(Job(Path("hub"), "AutoModel"), tmp_path / "job")
    assert json.loads((job / "job.json").read_text())["source"] == str(tmp_path / "hub")
    (tmp_path / "echo.py").write_text("raise SystemExit('no such luck')")
    monkeypatch.setattr(loading, "PROGRAM", tmp_path / "echo.py")
    with raises_sentence("no such luck", error=RuntimeError):
        loading.load_in_clean_process([])


def test_other_outputs_are_told_with_their_difference() -> None:
    held: dict[str, Any] = {"class": "A", "ties": {}, "loaded": {}}
    first = {"logits": torch.tensor([1.0, 2.0]), "kept": torch.ones(2)}
    found = Loaded({**held, "keys": {}}, {"logits": torch.tensor([1.0, 2.5]), "kept": torch.ones(2)})
    (finding,) = compared("A", found, held, first).findings
    assert {"logits", "0.5", "2"} <= set(finding.replace(",", "").split())
    (shapes,) = compared("A", Loaded(found.report, first), held, {**first, "logits": torch.ones(3)}).findings
    assert "logits" in shapes
