"""The manifest: complete, the same for the same model, and not written for a model that loading does not give back."""

import hashlib
import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

import qkv
import tiny
from published import CODE, change_json, change_tensors, ours, published, shards, stock
from qkv.scripts.common.inspector import fingerprint, held
from qkv.scripts.publishing.integrity.manifest import (
    MANIFEST,
    IntegrityError,
    by_name,
    expected_load,
    identity,
    read_manifest,
    write_manifest,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("somebody") / "hub"
    (folder / "custom_generate").mkdir(parents=True)
    (folder / ".cache").mkdir()
    files = {
        CODE: "x = 1\n",
        "custom_generate/generate.py": "y = 1\n",
        ".cache/notes": "mine",
        ".gitattributes": "* lfs",
    }
    return published(ours(), folder, **files)


def test_it_describes_every_file(folder: Path) -> None:
    manifest = read_manifest(folder)
    weights = [path.name for path in shards(folder)]
    assert len(weights) > 1
    assert set(manifest["files"]) == {
        *weights,
        *("model.safetensors.index.json", "config.json", "generation_config.json", "README.md"),
        *(CODE, "configuration_decoder.py", "LICENSE", "custom_generate/generate.py"),
    }
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    stored = {path.name: {n: fingerprint(t) for n, t in load_file(path).items()} for path in shards(folder)}
    assert manifest["tensors"] == stored
    assert manifest["fields"]["config.json"] == json.loads((folder / "config.json").read_text())


def test_it_has_the_tensors_of_a_load_in_the_stored_precision(folder: Path) -> None:
    manifest, model = read_manifest(folder), ours()
    assert manifest["dtype"] == "float32" and manifest["class"] == "QkvDecoderForCausalLM"
    assert manifest["ties"] == {"lm_head.weight": "model.embed_tokens.weight"}
    expected = {name: fingerprint(p) for name, p in model.named_parameters(remove_duplicate=False)}
    assert manifest["loaded"] == {"float32": {"parameter": expected, "buffer": {}, "attribute": {}}}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_precisions_are_those_of_the_rounded_files(folder: Path, dtype: str) -> None:
    model = ours().to(getattr(torch, dtype))
    assert expected_load(read_manifest(folder), folder, dtype, held(model)) == held(model)
    with torch.no_grad():
        model.model.norm.weight[0] += 0.5
    expected, found = expected_load(read_manifest(folder), folder, dtype, held(model)), held(model)
    assert {name for name, each in found["parameter"].items() if expected["parameter"][name] != each} == {
        "model.norm.weight"
    }


def test_buffers_that_no_file_holds_are_in_it(tmp_path: Path) -> None:
    folder = published(stock(), tmp_path / "hub")
    manifest, found = read_manifest(folder), held(stock().bfloat16())
    expected = fingerprint(stock().model.rotary_emb.inv_freq)
    assert manifest["loaded"]["float32"]["buffer"]["model.rotary_emb.inv_freq"] == expected
    assert not any("inv_freq" in name for tensors in manifest["tensors"].values() for name in tensors)
    # Frequencies stay in single precision when a load rounds the weights; those that are rounded are known by shape.
    kept = {**found, "buffer": manifest["loaded"]["float32"]["buffer"]}
    for held_buffers in (kept, found):
        assert expected_load(manifest, folder, "bfloat16", held_buffers)["buffer"] == held_buffers["buffer"]


def test_the_same_model_gives_the_same_text(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere"
    (again / "custom_generate").mkdir(parents=True)
    published(ours(), again, **{CODE: "x = 1\n", "custom_generate/generate.py": "y = 1\n"})
    text = (again / MANIFEST).read_text()
    assert text == (folder / MANIFEST).read_text() and str(tmp_path) not in text
    write_manifest(again)  # without the model, whose class the config names
    assert (again / MANIFEST).read_text() == text


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda folder: (folder / "README.md").write_text("another card"), True),
        (lambda folder: (folder / "curve.png").write_bytes(b"a picture"), True),
        (lambda folder: change_json(folder / "config.json", hidden_act="relu"), False),
        (lambda folder: (folder / CODE).write_text("x = 2\n"), False),
        (lambda folder: (folder / "vocab.txt").write_text("a"), False),
        (lambda folder: change_tensors(shards(folder)[0], lambda tensors: next(iter(tensors.values())).neg_()), False),
    ],
    ids=["card", "picture", "config", "code", "vocabulary", "tensor"],
)
def test_the_identity_is_that_of_the_model(
    change: Callable[[Path], Any], same: bool, folder: Path, tmp_path: Path
) -> None:
    again = Path(shutil.copytree(folder, tmp_path / "hub"))
    change(again)
    write_manifest(again)
    assert (identity(again) == identity(folder)) == same


class Filled(qkv.QkvDecoderForCausalLM):
    """A model with a buffer that no file holds, and that loading fills."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.register_buffer("angles", torch.arange(4.0), persistent=False)

    def _init_weights(self, module: Any) -> None:
        super()._init_weights(module)
        if module is self:
            self.angles.copy_(torch.arange(4.0))


class Unfilled(qkv.QkvDecoderForCausalLM):
    """The mistake: on loading nobody fills the buffer."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.register_buffer("angles", torch.arange(4.0), persistent=False)


class OnMeta(qkv.QkvDecoderForCausalLM):
    """The same mistake with a plain attribute."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.angles = torch.arange(4.0)


@pytest.mark.parametrize(
    ("model_class", "words"),
    [
        (Unfilled, "gives another model: buffer angles has other content"),
        (OnMeta, "attribute angles is never filled"),
    ],
)
def test_a_model_that_loading_does_not_give_back_has_no_manifest(
    model_class: type[PreTrainedModel], words: str, tmp_path: Path
) -> None:
    model = model_class(tiny.decoder("llama"))
    with pytest.raises(IntegrityError, match=words):
        published(model, tmp_path / "hub")
    assert not list(tmp_path.rglob("*manifest*"))


def test_a_buffer_that_loading_fills_is_no_obstacle(tmp_path: Path) -> None:
    folder = published(Filled(tiny.decoder("llama")), tmp_path / "hub")
    assert read_manifest(folder)["loaded"]["float32"]["buffer"] == {"angles": fingerprint(torch.arange(4.0))}


def test_files_that_are_not_the_models_have_no_manifest(tmp_path: Path) -> None:
    ours(seed=1).save_pretrained(tmp_path)
    with pytest.raises(
        IntegrityError, match="gives another model: parameter .* has other content, .* and [0-9]+ more; mend"
    ):
        write_manifest(tmp_path, ours(seed=2))


def test_a_class_that_nobody_has_needs_the_model(tmp_path: Path) -> None:
    Filled(tiny.decoder("llama")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="neither qkv nor transformers has the class that .*config.json names"):
        write_manifest(tmp_path)


def edited(folder: Path, tmp_path: Path, **fields: Any) -> Path:
    (tmp_path / MANIFEST).write_text((folder / MANIFEST).read_text())
    change_json(tmp_path / MANIFEST, **fields)
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": 2}, "has format=2, this qkv reads 1"),
        ({"format": True}, "has format=True, this qkv reads 1"),
        ({"identity": "0" * 64}, "was edited: its identity is [0-9a-f]{64}, and it says 0{64}"),
        ({"code": "0"}, "code and config are not those of its files"),
        ({"config": "0"}, "code and config are not those of its files"),
        ({"ties": {}}, "was edited"),
        ({"files": []}, "is damaged: files is no dict"),
        ({"tensors": {"../elsewhere": {}}}, "is damaged: ../elsewhere is no file with tensors"),
        ({"tensors": {CODE: {}}}, f"is damaged: {CODE} is no file with tensors"),
        ({"fields": {CODE: {}}}, f"is damaged: {CODE} is no file with fields"),
        (
            {"tensors": {f"model-0000{n}-of-00004.safetensors": {"a": ""} for n in (1, 2)}},
            "two files have a tensor of one",
        ),
        ({"files": {"/etc/passwd": {"sha256": "", "bytes": 1}}}, "/etc/passwd leads out of the folder"),
        ({"files": {"a" * 300: {"sha256": "", "bytes": 1}}}, "aaa… is too long for a file"),
        ({"files": {"a": {"sha256": ""}}}, "a has no sha256 and bytes"),
        ({"fields": {"config.json": 3}}, "config.json of fields is no dict"),
        ({"class": None}, "class is no str"),
        ({"tensors": {"model-00001-of-00004.safetensors": {"a": 5}}}, "a of .* of tensors is no str"),
        ({"loaded": {"float32": {"parameter": [5]}}}, "parameter of float32 of loaded is no dict"),
        ({"dtype": "nope"}, "loaded has nothing in its dtype"),
        ({"files": {"a": {"sha256": "", "bytes": "1"}}}, "a has no sha256 and bytes"),
        ({"transformers": ["5.23", "5.24"]}, "transformers has no oldest and newest release"),
        ({"transformers": {"oldest": "5.23"}}, "transformers has no oldest and newest release"),
        ({"transformers": {"oldest": "5.23", "newest": "5"}}, "transformers has no oldest and newest release"),
        ({"transformers": {"oldest": "5.23", "newest": 5.24}}, "transformers has no oldest and newest release"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    folder: Path, fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=words):
        read_manifest(edited(folder, tmp_path, **fields))


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="has no qkv_manifest.json to compare it with"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(IntegrityError, match="is not a JSON object; download it again"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[" * 10**5, "is not a JSON object"), ('{"files": {"a": 1, "a": 2}}', "has the key 'a' twice")],
    ids=["deep", "twice"],
)
def test_a_manifest_that_readers_may_read_otherwise_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(IntegrityError, match=words):
        read_manifest(tmp_path)


def test_the_weights_of_a_manifest_of_the_previous_version_are_the_same(tmp_path: Path) -> None:
    """`earlier_manifest.json` was written when manifests also listed a load in each usual precision."""
    (tmp_path / MANIFEST).write_text(Path(__file__).with_name("earlier_manifest.json").read_text())
    earlier = read_manifest(tmp_path)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = qkv.QkvDecoderConfig(**shape, vocab_size=16, max_position_embeddings=16)
    model = qkv.QkvDecoderForCausalLM(config)
    with torch.no_grad():
        for index, (_, parameter) in enumerate(sorted(model.named_parameters())):
            parameter.copy_(((torch.arange(parameter.numel()) * 0.37 + index).sin() / 3).view_as(parameter))
    now = read_manifest(published(model, tmp_path))
    assert by_name(now) == by_name(earlier) and now["ties"] == earlier["ties"]
    for dtype, loaded in earlier["loaded"].items():
        assert expected_load(now, tmp_path, dtype, held(deepcopy(model).to(getattr(torch, dtype)))) == loaded


def test_the_error_is_found_where_users_look_for_it() -> None:
    assert qkv.IntegrityError is IntegrityError and issubclass(IntegrityError, RuntimeError)
    with pytest.raises(AttributeError, match="has no attribute 'Integrity'"):
        _ = qkv.Integrity
