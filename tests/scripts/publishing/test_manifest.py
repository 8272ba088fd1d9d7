"""The manifest: complete, the same for the same model, not written for a model that loading does not give back."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import qkv
import tiny
from published import CODE, change_json, change_tensors, ours, published, shards
from qkv.scripts.common.inspector import fingerprint
from qkv.scripts.publishing.integrity.manifest import MANIFEST, IntegrityError, identity, read_manifest, write_manifest


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of file; do not change it."""
    folder = tmp_path_factory.mktemp("somebody") / "hub"
    (folder / "custom_generate").mkdir(parents=True)
    (folder / ".cache").mkdir()
    files = {CODE: "x = 1\n", "custom_generate/generate.py": "y = 1\n", ".cache/notes": "mine", ".gitattributes": "*"}
    return published(ours(), folder, **files)


def test_it_describes_every_file_and_tensor(kept: Path) -> None:
    manifest, model = read_manifest(kept), ours()
    assert len(shards(kept)) > 1 and manifest["class"] == "QkvDecoderForCausalLM" and manifest["dtype"] == "float32"
    assert set(manifest["files"]) == {
        *(path.name for path in shards(kept)),
        *("model.safetensors.index.json", "config.json", "generation_config.json", "README.md"),
        *(CODE, "configuration_decoder.py", "LICENSE", "custom_generate/generate.py"),
    }
    for name, entry in manifest["files"].items():
        data = (kept / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    assert manifest["ties"] == {"lm_head.weight": "model.embed_tokens.weight"}
    expected = {name: fingerprint(p) for name, p in model.named_parameters(remove_duplicate=False)}
    assert manifest["loaded"] == {"parameter": expected, "buffer": {}, "attribute": {}}


def test_the_same_model_gives_the_same_text(kept: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere"
    (again / "custom_generate").mkdir(parents=True)
    published(ours(), again, **{CODE: "x = 1\n", "custom_generate/generate.py": "y = 1\n"})
    text = (again / MANIFEST).read_text()
    assert text == (kept / MANIFEST).read_text() and str(tmp_path) not in text
    write_manifest(again)  # without the model, whose class the config names
    assert (again / MANIFEST).read_text() == text


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda folder: (folder / "README.md").write_text("another card"), True),
        (lambda folder: (folder / "curve.png").write_bytes(b"a picture"), True),
        (lambda folder: change_json(folder / "config.json", hidden_act="relu"), False),
        (lambda folder: (folder / CODE).write_text("x = 2\n"), False),
        (lambda folder: change_tensors(shards(folder)[0], lambda tensors: next(iter(tensors.values())).neg_()), False),
    ],
    ids=["card", "picture", "config", "code", "tensor"],
)
def test_the_identity_is_that_of_the_model(
    change: Callable[[Path], Any], same: bool, kept: Path, tmp_path: Path
) -> None:
    again = Path(shutil.copytree(kept, tmp_path / "hub"))
    change(again)
    write_manifest(again)
    assert (identity(again) == identity(kept)) == same


class Buffered(qkv.QkvDecoderForCausalLM):
    """A model with a buffer that no file holds, and that nobody fills on loading."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.register_buffer("angles", torch.arange(4.0), persistent=False)


class Filled(Buffered):
    """The same model, whose buffer is filled on loading."""

    def _init_weights(self, module: Any) -> None:
        super()._init_weights(module)
        if module is self:
            self.angles.copy_(torch.arange(4.0))


class OnMeta(qkv.QkvDecoderForCausalLM):
    """The mistake with a plain attribute."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.angles = torch.arange(4.0)


@pytest.mark.parametrize(("model_class", "words"), [(Buffered, "buffer angles"), (OnMeta, "attribute angles")])
def test_no_manifest_where_loading_loses_a_tensor(
    model_class: type[PreTrainedModel], words: str, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=words):
        published(model_class(tiny.decoder("llama")), tmp_path / "hub")
    assert not list(tmp_path.rglob("*manifest*"))


def test_a_buffer_that_loading_fills_is_no_obstacle(tmp_path: Path) -> None:
    folder = published(Filled(tiny.decoder("llama")), tmp_path / "hub")
    assert read_manifest(folder)["loaded"]["buffer"] == {"angles": fingerprint(torch.arange(4.0))}
    with pytest.raises(ValueError, match=r"config\.json"):  # a class that nobody has needs the model
        write_manifest(folder)
    with pytest.raises(IntegrityError, match="parameter "):
        write_manifest(published(ours(seed=1), tmp_path / "other"), ours(seed=2))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": 2}, "format=2"),
        ({"format": True}, "format=True"),
        ({"identity": "0" * 64}, "identity"),
        ({"ties": {}}, "identity"),
        ({"class": None}, "identity"),
        ({"files": {"../elsewhere": {"sha256": "", "bytes": 1}}}, "../elsewhere"),
        ({"files": {"/etc/passwd": {"sha256": "", "bytes": 1}}}, "/etc/passwd"),
        ({"files": {"a" * 300: {"sha256": "", "bytes": 1}}}, "aaa"),
        ({"files": {"a": {"sha256": ""}}}, "bytes"),
        ({"loaded": {"parameter": [5]}}, "damaged"),
        ({"loaded": {"parameter": {"a": 5}, "buffer": {}, "attribute": {}}}, "loaded"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    kept: Path, fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=MANIFEST):
        read_manifest(tmp_path)
    shutil.copy(kept / MANIFEST, tmp_path)
    change_json(tmp_path / MANIFEST, **fields)
    with pytest.raises(IntegrityError, match=words):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text("[" * 10**5)
    with pytest.raises(IntegrityError, match=MANIFEST):
        read_manifest(tmp_path)
