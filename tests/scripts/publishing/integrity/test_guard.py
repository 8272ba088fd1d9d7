"""QKV_VERIFY=1: no load of a qkv class goes unchecked, and one that cannot be checked is refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

import qkv
from published import change_json, change_tensors, forge, ours, published, shards
from qkv import QkvDecoderForCausalLM
from qkv.scripts.publishing.integrity.guard import is_read, load_checked
from qkv.scripts.publishing.integrity.manifest import IntegrityError


@pytest.fixture(autouse=True)
def verifying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_VERIFY", "1")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": torch.bfloat16},
        {"dtype": "float16"},
        {"dtype": "float64"},
        {"device_map": "cpu"},
        {"output_loading_info": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "loader", [QkvDecoderForCausalLM, AutoModelForCausalLM, AutoModel], ids=lambda each: each.__name__
)
def test_what_is_right_is_loaded(loader: Any, options: dict[str, Any], folder: Path) -> None:
    found = loader.from_pretrained(folder, **options)
    model = found[0] if options.get("output_loading_info") else found
    assert isinstance(model, qkv.modeling.base.QkvPreTrainedModel)
    assert str(model.dtype).endswith(str(options.get("dtype", "float32")).removeprefix("torch."))


@pytest.mark.parametrize("loader", [QkvDecoderForCausalLM, AutoModelForCausalLM], ids=lambda each: each.__name__)
@pytest.mark.parametrize("options", [{}, {"dtype": torch.bfloat16}, {"device_map": "cpu"}], ids=str)
def test_a_changed_tensor_is_named(loader: Any, options: dict[str, Any], folder: Path) -> None:
    change_tensors(shards(folder)[-1], lambda tensors: tensors["model.norm.weight"].neg_())
    with pytest.raises(
        IntegrityError, match="QKV_VERIFY refuses it: .* has other content, tensor model.norm.weight has"
    ):
        loader.from_pretrained(folder, **options)


def test_a_changed_config_is_named(folder: Path) -> None:
    change_json(folder / "config.json", norm_eps=0.5)
    with pytest.raises(IntegrityError, match="field norm_eps is 0.5, the manifest says 1e-05"):
        QkvDecoderForCausalLM.from_pretrained(folder)


def test_weights_that_were_left_behind_are_named(folder: Path) -> None:
    shutil.copy(shards(folder)[0], folder / "model.safetensors")
    with pytest.raises(IntegrityError, match="model.safetensors is not in the manifest"):
        QkvDecoderForCausalLM.from_pretrained(folder)


def test_what_happens_on_loading_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are right, and the installed code does something else with them."""
    original = QkvDecoderForCausalLM.__init__

    def buffered(self: Any, config: Any) -> None:
        original(self, config)
        self.register_buffer("angles", torch.zeros(3), persistent=False)

    monkeypatch.setattr(QkvDecoderForCausalLM, "__init__", buffered)
    with pytest.raises(IntegrityError, match="buffer angles is not in the manifest"):
        QkvDecoderForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_that_loading_changes_is_named(dtype: str, folder: Path) -> None:
    def load(source: Path, **options: Any) -> Any:
        model = QkvDecoderForCausalLM.from_pretrained(source, **options)
        model.model.norm.weight.data.neg_()
        return model

    with pytest.raises(IntegrityError, match="refuses it: parameter model.norm.weight has other content$"):
        load_checked(load, folder, dtype=dtype)


def test_what_the_folder_does_not_hold_is_refused(folder: Path) -> None:
    with pytest.raises(IntegrityError, match="parameter score.weight is not in the manifest"):
        AutoModelForSequenceClassification.from_pretrained(folder)


def test_without_a_manifest_there_is_no_check_and_no_model(folder: Path) -> None:
    (folder / "qkv_manifest.json").unlink()
    with pytest.raises(IntegrityError, match="asks for a check that cannot be made: .* has no qkv_manifest.json"):
        QkvDecoderForCausalLM.from_pretrained(folder)


def test_a_folder_in_a_folder(folder: Path, tmp_path: Path) -> None:
    QkvDecoderForCausalLM.from_pretrained(tmp_path, subfolder="hub")
    change_json(folder / "config.json", norm_eps=0.5)
    with pytest.raises(IntegrityError, match="field norm_eps"):
        QkvDecoderForCausalLM.from_pretrained(tmp_path, subfolder="hub")


def test_a_repository_that_cannot_be_had_is_told(folder: Path) -> None:
    with pytest.raises(ValueError, match="nobody/nothing is neither a folder here nor a checkpoint that the Hub gives"):
        QkvDecoderForCausalLM.from_pretrained("nobody/nothing")


@pytest.mark.parametrize("word", ["", "0", "false", "OFF"])
def test_nobody_is_checked_who_did_not_ask(word: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_VERIFY", word)
    change_tensors(shards(folder)[-1], lambda tensors: tensors["model.norm.weight"].neg_())
    QkvDecoderForCausalLM.from_pretrained(folder)


def test_publishing_and_converting_go_on(folder: Path, tmp_path: Path) -> None:
    """They load what has no manifest yet, or no folder."""
    published(ours(), tmp_path / "again")
    stock = qkv.to_transformers(ours())
    assert isinstance(qkv.from_transformers(stock), QkvDecoderForCausalLM)
    forge(folder)
    QkvDecoderForCausalLM.from_pretrained(folder)


def test_code_and_documents_are_not_read() -> None:
    assert [name for name in ("a/model-1.safetensors", "config.json", "README.md", "x.py") if is_read(name)] == [
        "a/model-1.safetensors",
        "config.json",
    ]


def test_the_signature_is_that_of_transformers() -> None:
    plain = QkvDecoderForCausalLM.from_pretrained.__wrapped__
    assert plain.__qualname__ == "PreTrainedModel.from_pretrained" and plain.__doc__
