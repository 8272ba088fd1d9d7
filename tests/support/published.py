"""Small published folders, and what an attacker or an accident does to them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import qkv
import tiny
from qkv.scripts.publishing.integrity.manifest import MANIFEST, describe_files, identify, identity, write_manifest

CODE = "modeling_decoder.py"
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
NUMBERS = {"vocab_size": 40, "max_position_embeddings": 32, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}


def ours(seed: int = 0) -> PreTrainedModel:
    """A decoder of qkv with tied embeddings."""
    torch.manual_seed(seed)
    return tiny.jitter(qkv.QkvDecoderForCausalLM(tiny.decoder("gpt2"))).eval()


def stock() -> PreTrainedModel:
    """A decoder of transformers that loading has to fill two buffers of."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **NUMBERS)).eval()


def published(model: PreTrainedModel, folder: Path, **files: str) -> Path:
    """The model in two or more files, beside other files, with its manifest."""
    model.save_pretrained(folder, max_shard_size="20kB")
    for name, text in {"README.md": "# card\n", **files}.items():
        (folder / name).write_text(text)
    write_manifest(folder, model)
    return folder


def shards(folder: Path) -> list[Path]:
    """The files with the weights."""
    return sorted(folder.glob("*.safetensors"))


def change_tensors(path: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Write a safetensors file once more, with other tensors."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path, metadata)


def flip(path: Path, offset: int = -4, bit: int = 1) -> None:
    """Change a bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= bit
    path.write_bytes(data)


def change_json(path: Path, **fields: Any) -> None:
    """Write a JSON file once more, with other fields."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2))


def age(folder: Path) -> None:
    """Make the code of a folder, with its manifest and card, that of a qkv tested with older releases."""
    earlier, stated = identity(folder), re.compile("(ested with transformers) .* to .*[.]")
    for path in folder.glob("*.py"):
        path.write_text(stated.sub(r"\1 5.22 to 5.23.", path.read_text()))
    text = stated.sub(r"\1 5.22 to 5.23.", (folder / "README.md").read_text())
    write_manifest(folder, card=lambda digest: text.replace(earlier, digest))


def forge(folder: Path) -> None:
    """Make the manifest agree with the files as they are now, but not with what loading them gives."""
    manifest = {**json.loads((folder / MANIFEST).read_text()), **describe_files(folder)}
    (folder / MANIFEST).write_text(json.dumps({**manifest, "identity": identify(manifest)}))
