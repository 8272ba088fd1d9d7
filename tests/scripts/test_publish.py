"""`qkv publish` to the Hub, as a user types it: its output, the Hub's state afterwards, and what the Hub never sees."""

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import keys
import qkv
import tables
import tiny
from endpoint import client
from loopback import Hub, failing, serving
from loopback.server import environment

TOKEN = "hf_" + "a1B2" * 9
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, with a model and one that holds a secret."""
    place = tmp_path_factory.mktemp("place")
    torch.manual_seed(0)
    for name, words in {"model": {}, "leaky": {TOKEN: 2}}.items():
        tiny.jitter(qkv.QkvEncoderForMaskedLM(tiny.encoder())).save_pretrained(place / name)
        known = WordLevel({"[UNK]": 0, "[MASK]": 1, **words}, unk_token="[UNK]")
        options = {"unk_token": "[UNK]", "mask_token": "[MASK]"}
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(known), **options).save_pretrained(place / name)
    for name in ("alice", "mallory"):
        keys.pair(place, name)
    return place


@pytest.fixture(scope="module")
def run(hub: Hub, place: Path) -> Iterator[Run]:
    """Run a command, a publication unless it is another; its answer also has the log of its requests."""
    with client(environment(hub.url, place / "home", "hf_alice"), place) as asked:

        def command(*words: str, **variables: str) -> dict[str, Any]:
            hub.log.clear()
            answer = asked.run(*(words if words[0] == "verify" else ["publish", *words]), **variables)
            return {**answer, "log": list(hub.log)}

        yield command


@pytest.fixture(scope="module")
def published(run: Run) -> dict[str, Any]:
    return run("model", "alice/own", "--private", "--tag", "v1", "--other", "alice/native")


@pytest.fixture(scope="module")
def native(run: Run) -> dict[str, Any]:
    return run("model", "alice/native", "--native", "--public", "--other", "alice/own", "--message", "the stock form")


def test_a_model_is_on_the_hub_with_its_tag(hub: Hub, published: dict[str, Any], place: Path) -> None:
    assert (published["status"], published["err"]) == (0, "")
    files, commit = hub.files("alice/own", "v1"), hub.model("alice/own").history()[0]
    assert {"README.md", "config.json", "model.safetensors", "qkv_manifest.json", "tokenizer.json"} <= files.keys()
    assert hub.model("alice/own").private and commit.title == "Publish with qkv"
    assert files["model.safetensors"] == (place / "model" / "model.safetensors").read_bytes()
    for shown in (commit.sha, f"{hub.url}/alice/own/commit/{commit.sha}", f"{len(files)}, ", "v1"):
        assert shown in published["out"]


def test_the_same_again_is_no_commit(hub: Hub, run: Run, published: dict[str, Any]) -> None:
    again = run("model", "alice/own", "--other", "alice/native")
    assert again["status"] == 0 and len(hub.model("alice/own").history()) == 2
    assert not [line for line in again["log"] if " /lfs/" in line]


def test_a_version_is_one_commit_with_its_deletions(hub: Hub, run: Run, native: dict[str, Any]) -> None:
    assert native["status"] == 0 and not [name for name in hub.files("alice/native") if name.endswith(".py")]
    assert hub.model("alice/native").history()[0].title == "the stock form"
    run("model", "alice/changing")
    before = hub.files("alice/changing")
    second = run("model", "alice/changing", "--native", "--max-shard-size", "20KB", "--revision", "next")
    after = hub.files("alice/changing", "next")
    assert second["status"] == 0 and len(hub.model("alice/changing").history("next")) == 3
    assert hub.files("alice/changing") == before
    assert "model.safetensors.index.json" in after and not {"model.safetensors", "modeling_encoder.py"} & after.keys()
    assert ".gitattributes" in hub.model("alice/changing").tree("next")


def test_tags_and_visibility_stay(hub: Hub, run: Run, published: dict[str, Any]) -> None:
    before = dict(hub.model("alice/own").refs)
    for words in (["--native", "--tag", "v1"], ["--public"], ["--revision", "v1"]):
        refused = run("model", "alice/own", *words)
        assert refused["status"] == 1 and refused["err"].count("\n") == 1
        assert words[-1].removeprefix("--") in refused["err"]
    assert hub.model("alice/own").refs == before


def test_a_pull_request_proposes(hub: Hub, run: Run, native: dict[str, Any]) -> None:
    before = hub.files("alice/native")
    result = run("model", "alice/native", "--native", "--pr", "--dtype", "float16", HF_TOKEN="hf_bob")
    assert result["status"] == 0 and f"{hub.url}/alice/native/discussions/1" in result["out"]
    assert hub.files("alice/native") == before != hub.files("alice/native", "refs/pr/1")


def test_an_upload_that_fails_is_finished_by_the_same_command(hub: Hub, run: Run) -> None:
    words = ["model", "alice/failing", "--native", "--dtype", "bfloat16"]
    for pattern, status in ((r"POST /api/repos/create", 500), (r"POST .*/commit/", 503)):
        with failing(hub, pattern, status):
            refused = run(*words)
        assert refused["status"] == 1 and refused["err"].count("\n") == 1 and "same command again" in refused["err"]
    assert hub.files("alice/failing") == {}
    with failing(hub, r"POST .*/tag/", 500):
        assert run(*words, "--tag", "v1")["status"] == 1
    last = run(*words, "--tag", "v1")
    assert last["status"] == 0 and len(hub.model("alice/failing").history()) == 2
    assert hub.files("alice/failing", "v1") == hub.files("alice/failing") != {}
    # The weights were there since the first try.
    assert not [line for line in last["log"] if " /lfs/" in line]


def test_a_push_by_somebody_else_is_not_overwritten(hub: Hub, run: Run, tmp_path: Path) -> None:
    run("model", "alice/shared", "--native")
    (tmp_path / "theirs.txt").write_text("theirs")
    pushed: list[str] = []
    hub.before = lambda line: pushed or "/preupload/" not in line or pushed.append(hub.put("alice/shared", tmp_path))
    refused = run("model", "alice/shared", "--native", "--dtype", "float16")
    hub.before = len
    assert refused["status"] == 1 and "alice/shared" in refused["err"] and "412" in refused["err"]
    assert hub.model("alice/shared").resolve("main") == pushed[0]


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_a_signature_goes_to_the_hub_and_names_its_signer(hub: Hub, run: Run, place: Path) -> None:
    shutil.rmtree(place / "built", ignore_errors=True)
    assert run("model", "./built", "--native", "--sign", "mallory.pem")["status"] == 0
    before = {path.name: path.read_bytes() for path in (place / "built").iterdir()}
    for source, name in (("model", "alice/signed"), ("./built", "alice/built")):
        signed = run(source, name, *(["--native"] if source == "model" else []), "--sign", "alice.pem")
        assert signed["status"] == 0 and "with alice.pem" in signed["out"] and signed["err"] == ""
        assert hub.files(name).keys() == before.keys() | {"model.sig"}
        statement = base64.b64decode(json.loads(hub.files(name)["model.sig"])["dsseEnvelope"]["payload"]).decode()
        assert json.loads(statement)["subject"][0]["name"] == name.partition("/")[2] and str(place) not in statement
    assert {path.name: path.read_bytes() for path in (place / "built").iterdir()} == before
    other = run("verify", "alice/signed", "--signed-by", "mallory.pub")
    assert other["status"] == 1 and other["err"].count("\n") == 1 and "mallory.pub" in other["err"]
    unsigned = run("verify", "alice/native", "--signed-by", "alice.pub")
    assert unsigned["status"] == 1 and "model.sig is missing" in unsigned["err"]


@pytest.mark.slow
def test_a_download_has_the_signature_of_its_upload(run: Run) -> None:
    """Out of the client's cache, which holds links, by every way of loading."""
    assert run("model", "alice/kept", "--native", "--sign", "alice.pem")["status"] == 0
    verified = run("verify", "alice/kept", "--signed-by", "alice.pub")
    assert verified["status"] == 0 and "alice.pub signed" in verified["out"], verified["err"]


def test_a_secret_never_reaches_the_hub(hub: Hub, run: Run) -> None:
    result = run("leaky", "alice/leaky", "--native")
    assert result["status"] == 1 and result["log"] == [] and ("model", "alice/leaky") not in hub.repositories
    assert "tokenizer.json holds a Hugging Face token" in result["err"] and TOKEN not in result["err"] + result["out"]


@pytest.mark.parametrize(("words", "mentions"), tables.beside(__file__).items())
def test_a_mistake_is_one_sentence(run: Run, words: str, mentions: str) -> None:
    result = run(*words.split())
    assert (result["status"], result["out"]) == (1, "") and result["err"].count("\n") == 1
    assert all(word in result["err"] for word in mentions.split()), result["err"]


@pytest.mark.costly(2)
@pytest.mark.parametrize(
    ("token", "status", "mention"),
    [("hf_unknown", None, "401"), ("hf_ro", None, "403"), ("hf_alice", 404, "404"), ("hf_alice", 400, "not now")],
)
def test_a_refusal_is_one_sentence(hub: Hub, run: Run, token: str, status: int | None, mention: str) -> None:
    name = f"alice/refused-{hashlib.sha256(f'{token}{status}'.encode()).hexdigest()[:6]}"
    with failing(hub, "POST .*/commit/" if status else "nothing", status or 0):
        result = run("model", name, "--native", HF_TOKEN=token)
    assert result["status"] == 1 and name in result["err"] and result["err"].count("\n") == 1
    assert mention in result["err"] and "hf_" not in result["err"]
