"""The Hub folder: complete, with its own code, and there wholly or not at all."""

import os
from pathlib import Path

import pytest
from transformers import AutoConfig, ViTImageProcessorPil

import qkv
from errors import raises_sentence
from qkv.modeling.conversion.files import read_json
from qkv.scripts.common import files as durable
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.manifest import MANIFEST, identity

pytestmark = pytest.mark.upstream


@pytest.fixture
def model() -> qkv.QkvImageEncoderForImageClassification:
    config = qkv.QkvImageEncoderConfig(
        image_size=4, patch_size=2, hidden_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    return qkv.QkvImageEncoderForImageClassification(config)


def test_the_folder_holds_all_that_loading_needs(model, tmp_path: Path) -> None:
    folder = build_folder(
        model,
        tmp_path / "a" / "hub",
        processors=[ViTImageProcessorPil()],
        card=lambda identity: f"# card of {identity}\n",
    )
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "preprocessor_config.json", "README.md", "LICENSE"} <= names
    config = AutoConfig.from_pretrained(folder)
    assert config.auto_map.keys() == qkv.QkvImageEncoderConfig.auto_classes.keys()
    assert {reference.partition(".")[0] + ".py" for reference in config.auto_map.values()} == {
        path.name for path in folder.glob("*.py")
    }
    assert model.config.auto_map == qkv.QkvImageEncoderConfig.auto_classes
    assert (folder / "README.md").read_text() == f"# card of {identity(folder)}\n"
    assert "README.md" in read_json(folder / MANIFEST)["files"]
    assert "Apache License" in (folder / "LICENSE").read_text()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(model, tmp_path: Path, value: float) -> None:
    model.classifier.weight.data[0, 0] = value
    with raises_sentence("classifier.weight", "learning_rate"):
        build_folder(model, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def test_files_go_along_by_their_paths(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    sync = durable.sync
    monkeypatch.setattr(durable, "sync", lambda path: (forced.append(path.name), sync(path)))
    files = {"curve.png": b"drawn", ".eval_results/digits.yaml": b"measured"}
    folder = build_folder(model, tmp_path / "hub", files=files)
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert {"curve.png", "digits.yaml", ".eval_results", "config.json"} <= set(forced)


def test_a_failure_leaves_nothing(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(durable, "sync", fail)
    with pytest.raises(OSError, match="disk full"):
        build_folder(model, tmp_path / "hub")
    assert os.listdir(tmp_path) == []


def test_an_empty_folder_is_filled_and_a_full_one_refused(model, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    build_folder(model, tmp_path / "hub")
    with pytest.raises(FileExistsError, match="hub is not empty"):
        build_folder(model, tmp_path / "hub")


def test_large_weights_come_in_several_files(model, tmp_path: Path) -> None:
    folder = build_folder(model, tmp_path / "hub", max_shard_size="1KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1 and (folder / "model.safetensors.index.json").is_file()


def test_what_was_loaded_from_a_folder_makes_the_same_folder(model, tmp_path: Path) -> None:
    first = build_folder(model, tmp_path / "first")
    again = build_folder(type(model).from_pretrained(first), tmp_path / "again")
    for path in first.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name
