"""Only what a model needs passes the screen; what does not is named, with its place, and its text is not repeated."""

import base64
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from qkv.scripts.publishing.hub import secrets as private
from qkv.scripts.publishing.hub.screen import UnfitError, scan

TOKEN = "hf_" + "a1B2" * 9
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200, 256)) * 4
PIECES = b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x10\n\x06/home/\x15\x00\x00\x00\x00"
CONFIG = {"model_type": "qkv_decoder", "auto_map": {"AutoConfig": "configuration_decoder.QkvDecoderConfig"}}
LABELS = {"id2label": {"0": "/m/0dgw9r", "1": "/h/home_office"}}
# What a learned vocabulary may hold: pieces that look like paths and names.
TOKENIZER = {"model": {"vocab": {"/home/x/": 0, "geraldine": 1}, "merges": [["/tmp/", "x"]]}, "pre_tokenizer": None}
reused = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every kind of file that may be published, on the machine of geraldine."""
    monkeypatch.setenv("LOGNAME", "geraldine")
    monkeypatch.setenv("SERVICE_PASSWORD", "correct-horse")
    monkeypatch.setattr(private.socket, "gethostname", lambda: "attic7")
    folder = tmp_path / "hub"
    (folder / ".eval_results").mkdir(parents=True)
    for name, value in {
        "config.json": CONFIG | LABELS,
        "tokenizer.json": TOKENIZER,
        "vocab.json": {"/tmp/x": 0},
    }.items():
        (folder / name).write_text(json.dumps(value))
    for name in ("modeling_decoder.py", "LICENSE", "merges.txt", "chat_template.jinja", ".eval_results/a.yaml"):
        (folder / name).write_text("x = 1\n")
    (folder / "README.md").write_text("A curve: ![](curve.png), and https://example.org/home/x\n")
    (folder / "curve.png").write_bytes(PNG)
    (folder / "spiece.model").write_bytes(PIECES)
    save_weights(folder / "model.safetensors")
    signature("config.json")(folder)
    return folder


def signature(name: str) -> Callable[[Path], None]:
    """What signs a file of that name; the screening does not ask by whom."""

    def plant(folder: Path) -> None:
        signed = json.dumps({"predicate": {"resources": [{"name": name, "digest": "00"}]}})
        payload = {"payload": base64.b64encode(signed.encode()).decode()}
        (folder / "model.sig").write_text(json.dumps({"verificationMaterial": {}, "dsseEnvelope": payload}))

    return plant


def save_weights(path: Path, name: str = "lm_head.weight", **metadata: str) -> None:
    save_file({name: np.zeros(3, np.float32)}, path, {"format": "pt", **metadata})


def refused(folder: Path, **options: Any) -> str:
    with pytest.raises(UnfitError) as error:
        scan(folder, **options)
    assert TOKEN not in str(error.value)
    return str(error.value)


def test_what_a_model_needs_passes(folder: Path) -> None:
    files = scan(folder)
    assert files == {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert len(files) == 13


def text(name: str, line: str) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        path = folder / name
        before = path.read_text() if path.is_file() else ""
        path.write_text(before + line + "\n")

    return plant


def values(name: str, **fields: Any) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        path = folder / name
        before = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(before | fields))

    return plant


def data(name: str, content: bytes) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return plant


def torch_file(name: str) -> Callable[[Path], None]:
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(1)}, buffer)
    return data(name, buffer.getvalue())


def linked(name: str, to: str) -> Callable[[Path], None]:
    """A link that the card even speaks of."""

    def plant(folder: Path) -> None:
        (folder / name).symlink_to(folder / to)
        text("README.md", f"![]({name}/x.png)")(folder)

    return plant


def archive(before: bytes) -> bytes:
    buffer = io.BytesIO(before)
    with zipfile.ZipFile(buffer, "a") as zipped:
        zipped.writestr("x", "x")
    return buffer.getvalue()


ZIP = "a zip archive, as torch.save writes pickles"
PLANTED: dict[str, tuple[Callable[[Path], None], str]] = {
    "token in what was signed": (
        signature(TOKEN),
        "model.sig holds a Hugging Face token (predicate.resources[0].name)",
    ),
    "no signature": (data("model.sig", b"{}"), "model.sig is not what its name says (model.sig is no signature"),
    "signature elsewhere": (data("other.sig", b"{}"), "other.sig is of no kind that a published model needs"),
    "token in a config": (
        values("config.json", hub={"t": [TOKEN]}),
        "config.json holds a Hugging Face token (hub.t[0])",
    ),
    "token as a key": (values("config.json", **{TOKEN: 1}), "config.json holds a Hugging Face token (a key)"),
    "token below a token": (
        values("config.json", a={TOKEN: {"b": "/home/x/y"}}),
        "config.json holds a Hugging Face token (a, a key); config.json holds the path /home/x/y (below a key)",
    ),
    "token in the card": (text("README.md", TOKEN), "README.md holds a Hugging Face token (line 2)"),
    "token in code": (text("modeling_decoder.py", f"T = '{TOKEN}'"), "modeling_decoder.py holds a Hugging Face"),
    "token in a vocabulary": (values("vocab.json", **{TOKEN: 5}), "vocab.json holds a Hugging Face token (line 1)"),
    "token among pieces": (
        values("tokenizer.json", model={"vocab": {TOKEN: 0}}),
        "tokenizer.json holds a Hugging Face token (model.vocab, a key)",
    ),
    "token in a picture": (data("curve.png", PNG + TOKEN.encode()), "curve.png holds a Hugging Face token (byte 232)"),
    "value of the environment": (text("README.md", "correct-horse"), "README.md holds the value of SERVICE_PASSWORD"),
    "home path in a config": (
        values("config.json", _name_or_path="/home/geraldine/m"),
        "config.json holds the path /home/geraldine/m (_name_or_path)",
    ),
    "path of anywhere": (values("config.json", data="/elsewhere/x"), "config.json holds the path /elsewhere/x (data)"),
    "local path": (values("config.json", _name_or_path="runs/a/model"), "config.json holds the path runs/a/model"),
    "path beside the vocabulary": (
        values("tokenizer.json", cache="/home/x/y"),
        "tokenizer.json holds the path /home/x/y (cache)",
    ),
    "path in a template": (text("chat_template.jinja", "/tmp/x"), "chat_template.jinja holds the path /tmp/x (line 2)"),
    "path in a vocabulary's options": (
        data("spiece.model", PIECES + b"/home/geraldine/corpus.txt"),
        "spiece.model holds the path /home/geraldine (byte 31)",
    ),
    "path in results": (text(".eval_results/a.yaml", "file: /mnt/x/y"), ".eval_results/a.yaml holds the path /mnt/x/y"),
    "user name": (text("README.md", "by geraldine"), "README.md holds the user name geraldine (line 2)"),
    "host name": (values("config.json", host="attic7"), "config.json holds the host name attic7 (host)"),
    "metadata of weights": (
        lambda folder: save_weights(folder / "model.safetensors", source="/home/x/y"),
        "model.safetensors holds the path /home/x/y (metadata.source)",
    ),
    "state of an optimizer as weights": (
        lambda folder: save_weights(folder / "model.safetensors", "lm_head.weight.exp_avg"),
        "model.safetensors holds the state of an optimizer (lm_head.weight.exp_avg)",
    ),
    "damaged weights": (data("model.safetensors", b"x" * 20), "model.safetensors is no whole safetensors file"),
    "pickle": (data("model.pkl", pickle.dumps({})), "model.pkl is a format that can run code when it is read"),
    "pickle as weights": (data("model.safetensors", pickle.dumps({})), "model.safetensors is a pickle"),
    "torch file as weights": (torch_file("model.safetensors"), f"model.safetensors is {ZIP}"),
    "torch file as text": (torch_file("LICENSE"), f"LICENSE is {ZIP}"),
    "torch file as a picture": (torch_file("curve.png"), f"curve.png is {ZIP}"),
    "torch file": (torch_file("pytorch_model.bin"), "pytorch_model.bin is a format that can run code when it is read"),
    "archive behind a picture": (data("curve.png", archive(PNG)), "curve.png is not what its name says"),
    "arguments of a training": (torch_file("training_args.bin"), "training_args.bin is the pickled arguments of a tra"),
    "state of an optimizer": (data("optimizer.pt", b"x"), "optimizer.pt is the state of a training"),
    "state of random numbers": (data("rng_state_0.pth", b"x"), "rng_state_0.pth is the state of a training"),
    "environment": (data(".env", b"A=1"), ".env is a file of environment variables"),
    "repository": (data(".git/config", b"x"), ".git is the history of a Git repository"),
    "folder": (data("checkpoint-5/config.json", b"{}"), "checkpoint-5 is of no kind that a published model needs"),
    "file of no kind": (data("notes.txt", b"x"), "notes.txt is of no kind that a published model needs"),
    "code in a folder": (data("lib/code.py", b"x"), "lib is of no kind that a published model needs"),
    "picture that is not shown": (data("other.png", PNG), "other.png is a picture that README.md does not show"),
    "text that is none": (data("LICENSE", b"\xff\xfe"), "LICENSE is no text"),
    "JSON with a key twice": (
        data("config.json", b'{"a": "one", "a": "other"}'),
        "config.json is no JSON (it has the key 'a' twice)",
    ),
    "token in a name": (data(f"{TOKEN}.png", PNG), "a file hf_… holds a Hugging Face token (its name)"),
    "JSON that is none": (data("config.json", b"{"), "config.json is no JSON"),
    "link to a file outside": (linked("NOTICE", "../secret"), "NOTICE is a link that leads out of the folder"),
    "link to a folder outside": (linked("images", ".."), "images is a link that leads out of the folder"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_named(folder: Path, planted: str) -> None:
    plant, clause = PLANTED[planted]
    plant(folder)
    sentence = refused(folder)
    assert sentence.startswith(f"{folder} may not be published: {clause}"), sentence
    assert "\n" not in sentence


def test_all_is_counted_and_the_first_are_named(folder: Path) -> None:
    for number in range(7):
        (folder / f"secret{number}.txt").write_text("x")
    sentence = refused(folder)
    assert "secret4.txt is" in sentence and "secret5" not in sentence and "; and 2 more; remove that" in sentence


def test_what_everybody_may_read_passes(folder: Path) -> None:
    (folder / "README.md").write_text("geraldine/model ![](curve.png) from /home/geraldine/model\n")
    assert "the user name geraldine" in refused(folder, public=["/home/geraldine/model"])
    assert scan(folder, public=["geraldine", "/home/geraldine/model"])
    (folder / "README.md").write_text(f"![](curve.png) {TOKEN}\n")
    assert "a Hugging Face token" in refused(folder, public=[TOKEN])


def test_a_link_within_the_folder_is_its_file(folder: Path) -> None:
    (folder / "NOTICE").symlink_to(folder / "LICENSE")
    assert "NOTICE" in scan(folder)


NAMES = (
    "model.safetensors README.md modeling_decoder.py vocab.json merges.txt config.json spiece.model curve.png".split()
)


@reused
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8), lambda part: st.lists(part, max_size=3), max_leaves=6
    ),
    st.integers(2, pickle.HIGHEST_PROTOCOL),
    st.sampled_from(NAMES),
)
def test_no_name_makes_a_pickle_pass(folder: Path, value: Any, protocol: int, name: str) -> None:
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(pickle.dumps(value, protocol))
    assert f"{name} is a pickle" in refused(folder)
    (folder / name).write_bytes(before)


@reused
@given(st.dictionaries(st.text(max_size=12), st.integers(), max_size=30))
def test_no_vocabulary_is_refused(folder: Path, words: dict[str, int]) -> None:
    (folder / "vocab.json").write_text(json.dumps(words))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words, "merges": list(words)}}))
    assert scan(folder)


@reused
@given(st.integers(0, 10**6))
def test_weights_that_are_cut_off_are_refused(folder: Path, cut: int) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    assert struct.unpack("<Q", whole[:8])[0] < len(whole)
    (folder / "model.safetensors").write_bytes(whole[: cut % len(whole)])
    assert "model.safetensors is no whole safetensors file" in refused(folder)
    (folder / "model.safetensors").write_bytes(whole)
