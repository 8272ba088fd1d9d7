"""The folder of a model, and of a run: complete, with its code and releases, there wholly or not at all."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoTokenizer,
    ViTImageProcessorPil,
)
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

import installation
import own_runs
import qkv
import stock_folders
import tiny
from checkout import ROOT
from errors import raises_sentence
from published import age, change_json
from qkv.modeling.conversion.files import read_json
from qkv.scripts.common import files as durable
from qkv.scripts.common.inspector import Job, outputs
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.export.run_folder import complete_run, write_run_card
from qkv.scripts.publishing.export.tested_releases import (
    TESTED,
    is_outdated,
    logger,
    spelled,
    stated_releases,
    untested,
)
from qkv.scripts.publishing.integrity.loading import load_in_clean_process
from qkv.scripts.publishing.integrity.manifest import MANIFEST, file_row, identity, read_manifest
from qkv.scripts.publishing.integrity.verification import expectation_findings

pytestmark = pytest.mark.upstream

OLDER = {"oldest": "5.22", "newest": "5.23"}
IMAGE = {"pixel_values": torch.linspace(0, 1, 192).view(1, 3, 8, 8)}


@pytest.fixture
def model() -> qkv.QkvImageEncoderForImageClassification:
    shape = {"image_size": 4, "patch_size": 2, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return qkv.QkvImageEncoderForImageClassification(qkv.QkvImageEncoderConfig(**shape))


def test_the_folder_is_complete(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    sync = durable.sync
    monkeypatch.setattr(durable, "sync", lambda path: (forced.append(path.name), sync(path)))
    files = {"curve.png": b"drawn", ".eval_results/digits.yaml": b"measured"}
    options = {"processors": [ViTImageProcessorPil()], "card": lambda digest: f"# card of {digest}\n", "files": files}
    folder = build_folder(model, tmp_path / "a" / "hub", **options)
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "preprocessor_config.json", "README.md", "LICENSE"} <= names
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert {"curve.png", "digits.yaml", ".eval_results", "config.json"} <= set(forced)
    config = AutoConfig.from_pretrained(folder)
    assert config.auto_map.keys() == qkv.QkvImageEncoderConfig.auto_classes.keys()
    code = {reference.partition(".")[0] + ".py" for reference in config.auto_map.values()}
    assert code == {path.name for path in folder.glob("*.py")}
    assert (folder / "README.md").read_text() == f"# card of {identity(folder)}\n"
    assert "README.md" in read_json(folder / MANIFEST)["files"]
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_a_failure_leaves_nothing(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError("disk full")

    broken = type(model)(model.config)
    broken.classifier.weight.data[0, 0] = float("nan")
    with raises_sentence("classifier.weight", "learning_rate"):
        build_folder(broken, tmp_path / "hub")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="disk full"):
        patched.setattr(durable, "sync", fail)
        build_folder(model, tmp_path / "hub")
    assert os.listdir(tmp_path) == []
    (tmp_path / "hub").mkdir()
    build_folder(model, tmp_path / "hub")
    with pytest.raises(FileExistsError, match="hub"):
        build_folder(model, tmp_path / "hub")


@pytest.mark.parametrize(
    "kind", ["classes", *(pytest.param(k, marks=pytest.mark.slow) for k in own_runs.KINDS if k != "classes")]
)
def test_publishing_keeps_the_identity_under_every_release(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(kind)
    for release in (transformers.__version__, "5.99.0"):
        for module in (transformers.configuration_utils, transformers.generation.configuration_utils):
            monkeypatch.setattr(module, "__version__", release)
        published = qkv.publish(run, tmp_path / release)
        assert published.identity == identity(run)
        assert expectation_findings(read_manifest(published.folder), run) == []


def test_a_model_of_parts_and_a_used_tokenizer_are_the_same_after_loading(tmp_path: Path) -> None:
    model = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    tokenizer = AutoTokenizer.from_pretrained(stock_folders.bert(tmp_path / "bert"))
    tokenizer("a b", truncation=True, max_length=3)
    first = build_folder(model, tmp_path / "first", processors=[tokenizer])
    changed = {"added by hand": {"is_local": 1}, "name_or_path": "/home/x/y", "is_local": True}
    change_json(first / "tokenizer_config.json", **changed)
    change_json(first / "config.json", note="by hand")
    (first / "LICENSE").write_text("All rights reserved.")
    (first / MANIFEST).unlink()
    again = qkv.publish(first, tmp_path / "again").folder
    names = {path.name for path in first.iterdir()}
    for name in names - {"tokenizer_config.json", "config.json"}:
        assert (again / name).read_bytes() == (first / name).read_bytes(), name
    assert read_json(again / "config.json") == read_json(first / "config.json")
    kept = read_json(again / "tokenizer_config.json")
    assert kept["added by hand"] == {"is_local": 1} and kept.keys().isdisjoint({"name_or_path", "is_local"})
    assert all(name in kept or name in changed for name in read_json(first / "tokenizer_config.json"))


def test_a_loaded_folder_makes_the_same_folder(model, tmp_path: Path) -> None:
    first = build_folder(model, tmp_path / "first")
    again = build_folder(type(model).from_pretrained(first), tmp_path / "again")
    assert len(list(build_folder(model, tmp_path / "split", max_shard_size="1KB").glob("model-*.safetensors"))) > 1
    for path in first.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.fixture
def trained(run_of: Callable[[str], Path]) -> Path:
    return run_of("images")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def findings(folder: Path) -> list[str]:
    """Differences from the manifest, before anything is loaded."""
    return file_row(folder, read_manifest(folder)).findings


def test_a_run_and_a_saved_model_load_with_and_without_qkv(trained: Path, tmp_path: Path) -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder()).eval()
    model.save_pretrained(tmp_path / "saved")
    tokens = {"input_ids": torch.arange(6)[None]}
    job = Job(trained, "AutoModelForImageClassification", IMAGE)
    loaded, saved = load_in_clean_process([job, Job(tmp_path / "saved", "AutoModelForCausalLM", tokens)])
    assert torch.equal(saved.outputs["logits"], outputs(model, tokens)["logits"])
    installed = outputs(AutoModelForImageClassification.from_pretrained(trained), IMAGE)
    assert torch.equal(loaded.outputs["logits"], installed["logits"])


def test_a_run_is_published_under_its_identity_with_its_card(run: Path, tmp_path: Path) -> None:
    (run / "notes.csv").write_text("a,b\n")
    shutil.rmtree(run / "checkpoints")
    published = qkv.publish(run, tmp_path / "hub")
    assert published.identity == identity(run) and not published.as_built and findings(run) == []
    names = {path.name for path in published.folder.iterdir()}
    assert {"README.md", "curve.png", "model.safetensors"} <= names
    assert names.isdisjoint({"record.json", "metrics.jsonl", "checkpoints", "notes.csv"})
    assert expectation_findings(read_manifest(published.folder), run) == []
    for name in ("modeling_other.py", "vocab.json"):
        (run / name).write_text("{}")
    assert [line.split()[0] for line in findings(run)] == ["modeling_other.py", "vocab.json"]


def test_an_edited_card_stays_until_the_model_is_another(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "notes.csv").write_text("a,b\n")
    card, model = run / "README.md", AutoModelForImageClassification.from_pretrained(run)
    card.write_text(edited := card.read_text() + "\nA sentence of mine.\n")
    for _ in range(2):
        complete_run(run, model)
        assert card.read_text() == edited
    hub = qkv.publish(run, tmp_path / "hub").folder
    assert (hub / "README.md").read_text() == edited and findings(hub) == []
    assert "left out" in (said := capsys.readouterr().err) and "notes.csv" in said and "record.json" not in said
    model.classifier.bias.data += 1
    model.save_pretrained(run)
    complete_run(run, model)
    assert (
        (run / "README.edited.md").read_text() == edited and "of mine" not in card.read_text() and findings(run) == []
    )


def test_the_card_is_written_again_and_the_folder_stays_whole(run: Path) -> None:
    record = json.loads((run / "record.json").read_text())
    record["recipe"]["title"] = "Another title"
    (run / "record.json").write_text(json.dumps(record))
    before = identity(run)
    assert write_run_card(run) == run / "README.md"
    card = (run / "README.md").read_text()
    assert "Another title" in card and before in card and identity(run) == before and findings(run) == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published folder, of which the installed transformers is the newest that was tested."""
    monkeypatch.setattr(transformers, "__version__", f"{TESTED['newest']}.1.dev0")
    qkv.publish(qkv.QkvEncoderForMaskedLM(tiny.encoder()), tmp_path / "hub")
    return tmp_path / "hub"


def test_code_and_card_state_the_releases_that_we_require_and_install(folder: Path, tmp_path: Path) -> None:
    floor = next(each for each in installation.requirements() if each.name == "transformers").specifier
    assert f">={TESTED['oldest']}" in map(str, floor)
    assert f"\ntransformers=={TESTED['newest']}." in (ROOT / "constraints.txt").read_text()
    assert stated_releases(folder) == TESTED
    assert f"tested with transformers {spelled(TESTED)}." in (folder / "README.md").read_text()
    qkv.publish(qkv.QkvEncoderForMaskedLM(tiny.encoder()), tmp_path / "native", native=True)
    (tmp_path / "modeling_mine.py").write_text("# Tested with transformers 5.23 to 5.23.\n")
    assert stated_releases(tmp_path) is stated_releases(tmp_path / "native") is None


@pytest.mark.parametrize(
    ("version", "stated", "warns"),
    [
        ("5.23.3", OLDER, False),
        ("5.24.0", OLDER, True),
        ("6.0.0", TESTED, True),
        ("5.3.0", {"oldest": "5.23", "newest": "5.30"}, False),
        ("6.0.0", None, False),
    ],
)
def test_a_newer_transformers_than_was_tested_has_a_remedy(
    version: str, stated: dict[str, str] | None, warns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "__version__", version)
    sentence = untested(tmp_path, stated)
    words = (version, str(stated and spelled(stated)), f"`qkv publish {tmp_path} TARGET`")
    assert all(word in sentence for word in words) if warns else sentence == ""
    assert is_outdated(OLDER) and not is_outdated(TESTED) and not is_outdated(None)


def test_loading_warns_once_of_a_folder_with_older_code(folder: Path) -> None:
    verbosity, said = logging.get_verbosity(), {}
    try:
        for name, level in (("new", logging.WARNING), ("quiet", logging.ERROR), ("old", logging.WARNING)):
            if name == "quiet":
                age(folder)
            logging.set_verbosity(level)
            with CaptureLogger(logger) as captured:
                for source in (folder, str(folder)):
                    AutoModelForMaskedLM.from_pretrained(source)
                AutoModelForMaskedLM.from_pretrained(folder.parent, subfolder=folder.name)
            said[name] = captured.out
    finally:
        logging.set_verbosity(verbosity)
    assert said["new"] == said["quiet"] == ""
    assert said["old"].count("\n") == 1 and untested(folder, OLDER) in said["old"]
