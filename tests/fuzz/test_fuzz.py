"""Damaged and hostile files of every kind that is read: one sentence of ours or a right result, and nothing else is done.

A few hundred inputs of each kind run with the other tests; `QKV_FUZZ=100000 pytest tests/fuzz` tries as many as wanted,
from the seed of `QKV_FUZZ_SEED`, and prints the slowest, and what memory all of them took.
"""

import io
import json
import os
import random
import resource
import sys
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from transformers import LlamaConfig, LlamaForCausalLM

import keys
import qkv
import tiny
from checkout import ROOT
from qkv.configuration.backward_compatibility import update_saved_config
from qkv.modeling.conversion.files import mapped, named, quiet, read_json, tensor_files, wrong_values
from qkv.scripts.common.model_size import largest_number
from qkv.scripts.data.audio import read_wav
from qkv.scripts.data.image import read_image
from qkv.scripts.data.readers import FORMATS, format_of
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.bundle import SIGNATURE
from qkv.scripts.publishing.integrity.manifest import read_manifest
from qkv.scripts.publishing.integrity.signature import signature_row, signer
from qkv.scripts.publishing.integrity.verification import file_rows
from qkv.scripts.recipes.loading import load

TRIES = int(os.environ.get("QKV_FUZZ", "150"))
SEED = int(os.environ.get("QKV_FUZZ_SEED", "0"))
# What runs code of others, starts a program or asks the network.
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class")
WORDS = [
    b"",
    b"0",
    b"-1",
    b"NaN",
    b"1e999",
    b"99999999999999999999",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'"',
    b"\x00",
    b"\xff",
    b"\n",
    b",",
    b"../",
    b"/dev/zero",
    b"!!python/object/apply:os.system",
    b"\\u0000",
    b"a" * 5000,
    b"[" * 3000,
]
watched: list[str] | None = None


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what is forbidden, while something is read."""
    if watched is not None and event in FORBIDDEN:
        watched.append(event)


sys.addaudithook(watch)


@contextmanager
def nothing_forbidden() -> Iterator[None]:
    global watched
    watched = []
    try:
        yield
    finally:
        seen, watched = watched, None
    assert not seen, seen


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut, repeat, replace: one to four times, often at the beginning, where headers are."""
    for _ in range(chance.randint(1, 4)):
        where = chance.randrange(len(data) + 1) if chance.random() < 0.5 else chance.randrange(min(len(data), 64) + 1)
        length = chance.choice((1, 1, 2, 4, 8, chance.randrange(len(data) + 1)))
        kind = chance.randrange(5)
        if kind == 0:
            data = data[:where] + chance.randbytes(min(length, 16)) + data[where + min(length, 16) :]
        elif kind == 1:
            data = data[:where] + data[where + length :]
        elif kind == 2:
            data = data[:where] + data[where : where + length] + data[where:]
        elif kind == 3:
            data = data[:where] + chance.choice(WORDS) + data[where + length :]
        else:
            data = data[:where]
    return data


def mutated(value: Any, chance: random.Random) -> Any:
    """Change one value of JSON, a key of it, or what is below it."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(sorted(value))
        changed = {**value, key: mutated(value[key], chance)}
        if chance.random() < 0.1:
            changed[chance.choice([key.upper(), key + "_", "", "attn_implementation"])] = changed.pop(key)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], mutated(value[at], chance), *value[at + 1 :]]
    return chance.choice(
        [
            None,
            True,
            0,
            -1,
            1,
            2,
            3,
            10**6,
            10**18,
            -(10**18),
            0.5,
            float("nan"),
            "",
            "x",
            "/etc/passwd",
            "../x",
            [],
            {},
            [value],
            {"a": value},
        ]
    )


@dataclass(frozen=True)
class Kind:
    """How a file is made whole, and read."""

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    as_json: bool = False
    # Whether any change of the file must be refused.
    sealed: bool = False


def wav(folder: Path) -> Path:
    path = folder / "x.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 400, "NONE", "not compressed"))
        file.writeframes(bytes(800))
    return path


def picture(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pixels = np.random.default_rng(0).integers(0, 255, (12, 9, 3), np.uint8)
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, kind)
        path = folder / f"x.{kind.lower()}"
        path.write_bytes(data.getvalue())
        return path

    return make


def table(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(content, encoding="utf-8")
        return path

    return make


def parquet(folder: Path) -> Path:
    path = folder / "x.parquet"
    rows = pa.table({"text": ["a", "b", "c"] * 20, "label": [0, 1, 0] * 20})
    pq.write_table(rows, path, row_group_size=20)
    return path


def read_rows(path: Path) -> int:
    pieces = FORMATS[path.suffix].pieces(path, "line")
    return sum(1 for piece in pieces for _ in format_of(piece).rows(piece))


def exported(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        torch.manual_seed(0)
        build_folder(qkv.QkvDecoderForCausalLM(tiny.decoder(num_hidden_layers=1)), folder / "model")
        return folder / "model" / name

    return make


def load_config(path: Path) -> None:
    """Read a config, and build what it describes: without memory, or what no machine can hold, which is refused."""
    named(path.parent)
    with wrong_values(path.parent):
        config = qkv.QkvDecoderConfig.from_dict(update_saved_config(read_json(path)))
        if config.num_hidden_layers < 50:
            with nullcontext() if largest_number(config.to_dict()) > 10**12 else torch.device("meta"):
                qkv.QkvDecoderModel(config)


def stock(name: str, **options: Any) -> Callable[[Path], Path]:
    """Make a checkpoint of transformers."""

    def make(folder: Path) -> Path:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
        )
        LlamaForCausalLM(config).save_pretrained(folder, **options)
        return folder / name

    return make


def convert(path: Path) -> None:
    qkv.from_transformers(path.parent)


def read_tensors(path: Path) -> None:
    """Find every tensor of a checkpoint, and read it."""
    for name, file in tensor_files(path.parent).items():
        mapped(file, name).clone()


def compare_files(path: Path) -> None:
    """Compare a folder with its manifest, without loading it, for which its code would run."""
    findings = [finding for row in file_rows(path.parent, read_manifest(path.parent)) for finding in row.findings]
    if findings:
        raise qkv.IntegrityError("; ".join(findings))


def signed(folder: Path) -> Path:
    """A folder of one file and its signature."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qkv_decoder"}')
    private, _ = keys.pair(folder)
    signer(private).sign(model, model / SIGNATURE)
    return model / SIGNATURE


def verify_signature(path: Path) -> None:
    """Verify the signature of a folder."""
    if findings := signature_row(path.parent, path.parents[1] / "alice.pub").findings:
        raise qkv.IntegrityError("; ".join(findings))


RECIPE = ROOT / "scripts" / "recipes" / "copy.yaml"
KINDS = {
    "wav": Kind(wav, read_wav),
    **{kind.lower(): Kind(picture(kind), read_image) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")},
    "csv": Kind(table("x.csv", 'text,label\n"a, b",1\nc,0\n"d\ne",1\n'), read_rows),
    "jsonl": Kind(table("x.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n'), read_rows),
    "json": Kind(table("x.json", '[{"text": "a", "label": 1}, {"text": "b", "label": 0}]'), read_rows),
    "txt": Kind(table("x.txt", "one\ntwo\n\nthree\n"), read_rows),
    "parquet": Kind(parquet, read_rows),
    "recipe": Kind(table("x.yaml", RECIPE.read_text(encoding="utf-8")), lambda path: load(str(path))),
    "config": Kind(exported("config.json"), load_config, as_json=True),
    "config as bytes": Kind(exported("config.json"), load_config),
    "manifest": Kind(exported("qkv_manifest.json"), compare_files, as_json=True),
    "manifest as bytes": Kind(exported("qkv_manifest.json"), compare_files),
    "signature": Kind(signed, verify_signature, as_json=True),
    "signature as bytes": Kind(signed, verify_signature),
    "signed file": Kind(lambda folder: signed(folder).with_name("config.json"), verify_signature, sealed=True),
    "weights": Kind(exported("model.safetensors"), compare_files, sealed=True),
    "index": Kind(stock("model.safetensors.index.json", max_shard_size="3kB"), read_tensors, as_json=True),
    "index as bytes": Kind(stock("model.safetensors.index.json", max_shard_size="3kB"), read_tensors),
    "stock weights": Kind(stock("model.safetensors"), read_tensors),
    "stock config": Kind(stock("config.json"), convert, as_json=True),
    "verified config": Kind(exported("config.json"), compare_files),
}
# What says what is wrong.
EXPECTED = (ValueError, OSError, qkv.IntegrityError)


def same(changed: bytes, whole: bytes, *, as_json: bool) -> bool:
    return json.loads(changed) == json.loads(whole) if as_json else changed == whole


@pytest.mark.parametrize("name", KINDS)
def test_damage_ends_in_a_sentence(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path = kind.make(tmp_path)
    whole = path.read_bytes()
    kind.read(path)  # imports what reading takes, which compiles and runs code
    slowest, before = (0.0, 0), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(TRIES):
        chance = random.Random(f"{SEED} {name} {number}")
        changed = json.dumps(mutated(json.loads(whole), chance)).encode() if kind.as_json else damaged(whole, chance)
        path.write_bytes(changed)
        start = time.perf_counter()
        try:
            with quiet(), nothing_forbidden():
                kind.read(path)
            assert not kind.sealed or same(changed, whole, as_json=kind.as_json), (
                number,
                "was changed and is verified",
            )
        except EXPECTED as error:
            assert str(error).strip(), (number, repr(error))
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"input {number} of {name}: {type(error).__name__}: {error}") from error
        slowest = max(slowest, (time.perf_counter() - start, number))
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{name}: {TRIES} inputs from seed {SEED}: the slowest, {slowest[1]}, {slowest[0]:.2f} s; {peak:.0f} MiB more"
    )
