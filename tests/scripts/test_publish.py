"""`qkv publish` to the Hub, as a user types it: what it prints, what the Hub then holds, and what it never sees."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import keys
import qkv
import tables
import tiny
from checkout import PYTHONPATH
from loopback.process import LoopbackHub
from uploads import commits, look, tree

CLIENT = Path(__file__).parents[1] / "hub" / "command_client.py"
TOKEN = "hf_" + "a1B2" * 9


@dataclass(frozen=True)
class Result:
    """What a command left: its exit status, what it printed, and how the Hub was asked."""

    status: int
    out: str
    err: str
    methods: list[str]


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path_factory.mktemp("publish") / "hub") as hub:
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
    return place


@pytest.fixture(scope="module")
def run(hub: LoopbackHub, place: Path) -> Iterator[Run]:
    """Run a command in the one process that there is for all of them."""
    process = subprocess.Popen(
        [sys.executable, CLIENT],
        env=hub.environment(place / "home", xet=True, COLUMNS=140, PYTHONPATH=PYTHONPATH),
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def command(*words: str, **environment: str) -> Result:
        hub.log()
        command = list(words) if words[0] == "verify" else ["publish", *words]
        order = {"words": command, "environment": {"HF_TOKEN": "hf_alice", **environment}}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        return Result(**answer, methods=[request["method"] for request in hub.log()])

    yield command
    process.stdin.close()
    assert process.wait(20) == 0


@pytest.fixture(scope="module")
def published(run: Run) -> Result:
    return run("model", "alice/own", "--private", "--tag", "v1", "--other", "alice/native")


@pytest.fixture(scope="module")
def native(run: Run) -> Result:
    return run("model", "alice/native", "--native", "--public", "--other", "alice/own", "--message", "the stock form")


def test_a_model_is_on_the_hub_with_its_tag(hub: LoopbackHub, published: Result) -> None:
    assert published.status == 0 and published.err == ""
    files = tree(hub, "alice/own", "v1")
    assert {"README.md", "config.json", "model.safetensors", "qkv_manifest.json", "tokenizer.json"} <= files.keys()
    assert look(hub, "alice/own", "")["private"] is True
    commit = commits(hub, "alice/own")[0]
    for shown in (commit, f"{hub.url}/alice/own/tree/{commit}", "model, self-contained", f"{len(files)} new", "v1"):
        assert shown in published.out


def test_the_same_again_is_no_commit(hub: LoopbackHub, run: Run, published: Result) -> None:
    again = run("model", "alice/own", "--tag", "v1", "--other", "alice/native")
    assert again.status == 0 and set(again.methods) == {"GET"}
    assert f"{len(tree(hub, 'alice/own'))} same; 0 bytes sent" in again.out and len(commits(hub, "alice/own")) == 2


def test_a_dry_run_shows_every_file_and_writes_nothing(hub: LoopbackHub, run: Run, published: Result) -> None:
    shown = run("model", "alice/own", "--native", "--dry-run")
    assert shown.status == 0 and set(shown.methods) == {"GET"} and len(commits(hub, "alice/own")) == 2
    rows = {line.split()[1]: line for line in shown.out.splitlines() if line.startswith("│ ")}
    assert tree(hub, "alice/own").keys() <= rows.keys()
    states = [rows[name].split()[-2] for name in ("model.safetensors", "LICENSE", "modeling_encoder.py")]
    assert states == ["changed", "same", "deleted"]
    assert "nothing was written" in shown.out
    new = run("model", "alice/another", "--native", "--dry-run")
    assert "nothing: there is no such repository that you may see" in new.out and look(hub, "alice/another", "") is None


def test_the_native_form_has_no_code(hub: LoopbackHub, native: Result) -> None:
    assert native.status == 0 and "model, native" in native.out
    assert not [name for name in tree(hub, "alice/native") if name.endswith(".py")]
    assert look(hub, "alice/native", "/commits/main")[0]["title"] == "the stock form"


def test_a_pull_request_is_shown(hub: LoopbackHub, run: Run, native: Result) -> None:
    result = run("model", "alice/native", "--native", "--pr", "--dtype", "float16", HF_TOKEN="hf_bob")
    assert result.status == 0 and f"{hub.url}/alice/native/discussions/1" in result.out


@pytest.fixture(scope="module")
def signed(run: Run, place: Path) -> Result:
    for name in ("alice", "mallory"):
        keys.pair(place, name)
    return run("model", "alice/signed", "--native", "--sign", "alice.pem", "--tag", "v1")


def test_a_signature_goes_to_the_hub_with_what_it_signs(hub: LoopbackHub, run: Run, signed: Result) -> None:
    assert signed.status == 0 and "with alice.pem" in signed.out and signed.err == ""
    assert "model.sig" in tree(hub, "alice/signed", "v1")
    again = run("model", "alice/signed", "--native", "--sign", "alice.pem", "--tag", "v1")
    assert again.status == 0 and f"{len(tree(hub, 'alice/signed'))} same; 0 bytes sent" in again.out
    assert len(commits(hub, "alice/signed")) == 2


def test_another_key_is_another_commit(hub: LoopbackHub, run: Run, signed: Result) -> None:
    before = tree(hub, "alice/signed")
    other = run("model", "alice/signed", "--native", "--sign", "mallory.pem", "--revision", "other")
    after = tree(hub, "alice/signed", "other")
    assert other.status == 0 and {name for name in after if after[name] != before.get(name)} == {"model.sig"}
    refused = run("verify", "alice/signed", "--revision", "other", "--signed-by", "alice.pub")
    assert refused.status == 1 and refused.err.count("\n") == 1
    assert (
        "is not what was signed: signature: model.sig was made with another key than the key alice.pub" in refused.err
    )
    unsigned = run("verify", "alice/signed", "--revision", commits(hub, "alice/signed")[-1], "--signed-by", "alice.pub")
    assert unsigned.status == 1 and "model.sig is missing, so nobody signed this" in unsigned.err


def test_a_folder_that_was_built_before_is_signed_and_stays_as_it_is(
    hub: LoopbackHub, run: Run, place: Path, signed: Result
) -> None:
    assert run("model", "./built", "--native").status == 0
    before = {path.name: path.read_bytes() for path in (place / "built").iterdir()}
    for sent in ("new", "same"):  # a signature that does not hold would not be the same again
        result = run("./built", "alice/built", "--sign", "alice.pem")
        assert result.status == 0 and f"{len(before) + 1} {sent}" in result.out, result.err
    assert tree(hub, "alice/built").keys() == before.keys() | {"model.sig"}
    assert {path.name: path.read_bytes() for path in (place / "built").iterdir()} == before


@pytest.mark.slow
def test_what_came_from_the_hub_is_what_was_signed(run: Run, signed: Result) -> None:
    """Out of the client's cache, which holds links, by every way of loading."""
    verified = run("verify", "alice/signed", "--revision", "v1", "--signed-by", "alice.pub")
    assert verified.status == 0, verified.err
    assert "files are what the key alice.pub signed" in verified.out.splitlines()[-1]


def test_a_secret_never_reaches_the_hub(hub: LoopbackHub, run: Run) -> None:
    result = run("leaky", "alice/leaky", "--native")
    assert result.status == 1 and result.methods == [] and look(hub, "alice/leaky", "") is None
    assert "tokenizer.json holds a Hugging Face token (model.vocab, a key); remove that" in result.err
    assert TOKEN not in result.err + result.out


@pytest.mark.parametrize(("words", "sentence"), tables.beside(__file__).items())
def test_a_mistake_is_one_sentence(run: Run, words: str, sentence: str) -> None:
    result = run(*words.split())
    assert result.status == 1 and result.out == ""
    assert result.err.startswith(f"qkv: {sentence}") and result.err.count("\n") == 1, result.err
