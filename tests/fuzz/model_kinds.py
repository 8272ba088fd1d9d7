"""Configs, manifests, signatures and weights, compared with plain JSON, bytes and transformers."""

import base64
import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from kinds import Kind, unchanged
from transformers import LlamaConfig, LlamaForCausalLM

import keys
import qkv
import tiny
from qkv.configuration.saved_config import check_saved_config
from qkv.modeling.conversion.files import named, read_json, unreadable
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.manifest import SIGNATURE, file_row, read_manifest
from qkv.scripts.publishing.integrity.signature import sign, signature_row, signer


def exported(name: str, **fields: Any) -> Callable[[Path], Path]:
    """Make a published folder of ours."""

    def make(folder: Path) -> Path:
        torch.manual_seed(0)
        build_folder(qkv.QkvDecoderForCausalLM(tiny.decoder(num_hidden_layers=1, **fields)), folder / "model")
        return folder / "model" / name

    return make


def stock(folder: Path) -> Path:
    """Make a checkpoint of transformers."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=61, **sizes)).save_pretrained(folder)
    return folder / "config.json"


@contextmanager
def torch_overflow() -> Iterator[None]:
    """Take torch's refusal of sizes beyond 64 bits for a refused file."""
    try:
        yield
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise ValueError(str(error)) from error


def load_config(path: Path) -> qkv.QkvDecoderConfig:
    """Read a config, and build its model without memory."""
    named(path.parent)
    with unreadable(path.parent):
        config = qkv.QkvDecoderConfig.from_dict(check_saved_config(read_json(path)))
        if config.num_hidden_layers < 50:
            with torch.device("meta"), torch_overflow():
                qkv.QkvDecoderModel(config)
    return config


# What says as much as no value: no projection has a bias, and nothing is said of rotations.
NOTHING: dict[str, object] = {"attention_bias": [], "rope_parameters": {}}


def spelt(value: object) -> str:
    """A value as JSON spells it, whatever the order of its keys: 1 is no 1.0, and no True."""
    return json.dumps(json.loads(json.dumps(value)), sort_keys=True)


def check_config(path: Path, whole: bytes, config: qkv.QkvDecoderConfig) -> None:
    """Compare each field with the value in the file, and a config that is saved and read again with this one.

    A save writes the `auto_map` of the class.
    """
    saved, held = json.loads(path.read_text(encoding="utf-8")), json.loads(json.dumps(config.to_dict()))
    given = {each.name for each in dataclasses.fields(config) if saved.get(each.name) is not None}
    given -= {"transformers_version"}  # always that which is installed
    given -= {name for name in NOTHING if saved.get(name) == NOTHING[name]}
    other = {name: (saved[name], held[name]) for name in given if spelt(saved[name]) != spelt(held[name])}
    assert not other, other
    assert [*config.id2label] == [*range(config.num_labels)]  # scores are read in this order
    (again := path.parents[1] / "again").mkdir(exist_ok=True)
    config.to_json_file(again / path.name)
    values, _ = type(config).get_config_dict(again)
    loaded, held = type(config).from_dict(values).to_dict(), config.to_dict()
    changed = {name: (held.get(name), loaded.get(name)) for name in (held | loaded).keys() - {"auto_map"}}
    changed = {name: pair for name, pair in changed.items() if spelt(pair[0]) != spelt(pair[1])}
    assert not changed, changed


def convert(path: Path) -> Any:
    return qkv.from_transformers(path.parent)


def check_conversion(path: Path, whole: bytes, model: Any) -> None:
    """Compare the logits with those of the model that transformers makes of the same files."""
    official = LlamaForCausalLM.from_pretrained(path.parent)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, official(tokens).logits, equal_nan=True)


def compare_files(path: Path) -> None:
    """Compare a folder with its manifest, without loading it, for which its code would run."""
    findings = file_row(path.parent, read_manifest(path.parent)).findings
    if findings:
        raise qkv.IntegrityError("; ".join(findings))


def check_manifest(path: Path, whole: bytes, read: object) -> None:
    """A manifest with which a folder agrees is as it was, but for the versions that made it."""
    one, other = (json.loads(data) for data in (path.read_bytes(), whole))
    assert json.dumps(one | {"versions": 0}, sort_keys=True) == json.dumps(other | {"versions": 0}, sort_keys=True)


def signed(folder: Path) -> Path:
    """Make a folder of one file and its signature."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qkv_decoder"}')
    private, _ = keys.pair(folder)
    sign(signer(private), model)
    return model / SIGNATURE


def verify_signature(path: Path) -> None:
    """Verify the signature of a folder."""
    if findings := signature_row(path.parent, path.parents[1] / "alice.pub").findings:
        raise qkv.IntegrityError("; ".join(findings))


def check_signature(path: Path, whole: bytes, read: object) -> None:
    """What is signed in a signature that holds is what was signed."""
    one, other = (json.loads(data)["dsseEnvelope"] for data in (path.read_bytes(), whole))
    assert one["payloadType"] == other["payloadType"]
    assert base64.b64decode(one["payload"]) == base64.b64decode(other["payload"])


# Of each tensor a file is opened again, so models whose files alone matter have few.
FEW: dict[str, Any] = {"attention_bias": False, "mlp_bias": False, "position": "none", "norm": "rms"}
KINDS = {
    "config": Kind(exported("config.json"), load_config, check_config, as_json=True),
    "config as bytes": Kind(exported("config.json"), load_config, check_config),
    "manifest": Kind(exported("qkv_manifest.json", **FEW), compare_files, check_manifest, as_json=True),
    "manifest as bytes": Kind(exported("qkv_manifest.json", **FEW), compare_files, check_manifest),
    "signature": Kind(signed, verify_signature, check_signature, as_json=True),
    "signature as bytes": Kind(signed, verify_signature, check_signature),
    "signed file": Kind(lambda folder: signed(folder).with_name("config.json"), verify_signature, unchanged),
    "weights": Kind(exported("model.safetensors", **FEW), compare_files, unchanged),
    "verified config": Kind(exported("config.json", **FEW), compare_files, unchanged),
    "stock config": Kind(stock, convert, check_conversion, as_json=True),
}
