"""`qkv verify`: one table, one sentence, and an exit status that tells; with a process that has no qkv, and a Hub."""

import json
import shutil
from pathlib import Path

import pytest
import transformers

from endpoint import client
from loopback import serving
from loopback.server import environment
from published import change_json, flip, ours, shards
from qkv.scripts.cli import main
from qkv.scripts.common.inspector import Job
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity import verification
from qkv.scripts.publishing.integrity.loading import Loaded
from qkv.scripts.publishing.integrity.manifest import identity
from qkv.scripts.publishing.integrity.verification import loaded


@pytest.fixture
def folder(native: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(native, tmp_path / "hub"))


@pytest.fixture(params=["this process", pytest.param("another", marks=pytest.mark.slow)])
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loads without qkv are made; in this process they are made with it, which a stock model does not mind."""

    def elsewhere(jobs: list[Job]) -> list[Loaded]:
        return [loaded(getattr(transformers, job.auto_class), job.source, job.inputs) for job in jobs]

    if request.param == "this process":
        monkeypatch.setattr(verification, "load_in_clean_process", elsewhere)


@pytest.mark.usefixtures("process")
def test_an_untouched_folder_passes_by_every_way(
    native: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(native), "--json", str(tmp_path / "found.json"), "--expect", str(native)]) == 0
    assert identity(native) in capsys.readouterr().out.splitlines()[-1]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["passed"] and (found["target"], found["commit"]) == (str(native), None)
    assert found["identity"] == identity(native)
    rows = {row["check"]: row for row in found["rows"]}
    assert {row["result"] for row in rows.values()} == {"passed"}
    for name in ("AutoModelForCausalLM", "without qkv, AutoModelForCausalLM"):
        assert rows[name]["detail"] == "23 tensors equal, outputs equal bit by bit"
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_a_corrupted_folder_is_named_in_table_and_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_json(folder / "config.json", rms_norm_eps=0.5)
    (folder / "a[red]b.txt").touch()
    assert main(["verify", str(folder), "--json", str(folder / "found.json")]) == 1
    printed = capsys.readouterr()
    assert "config.json" in printed.err and printed.err.count("\n") == 1
    assert "FAILED" in printed.out and "config.json" in printed.out and "a[red]b.txt" in printed.out
    assert not json.loads((folder / "found.json").read_text())["passed"]


@pytest.mark.slow
def test_a_repository_is_verified_at_a_revision_and_offline(tmp_path: Path) -> None:
    first, second = (build_folder(ours(seed), tmp_path / f"model{seed}") for seed in (0, 1))
    flipped = Path(shutil.copytree(second, tmp_path / "flipped"))
    flip(shards(flipped)[-1])
    with serving() as hub:
        commit = hub.put("alice/model", first, "first")
        hub.put("alice/model", second, "second")
        hub.put("alice/model", flipped, "flipped")
        at = {tag: ("verify", "alice/model", "--revision", tag) for tag in ("first", "second", "flipped", "third")}
        with client(environment(hub.url, tmp_path / "home", "hf_alice"), tmp_path) as asked:
            for words in (("--expect", identity(first)), ("--expect", "model0"), ("--trust-remote-code",), ()):
                answer = asked.run(*at["first"], *words)
                assert answer["status"] == 0 and f"{commit} is what" in answer["out"], answer["err"]
                assert ("not run: remote code" in answer["out"]) == (words == ())
            for tag, words, mention in (
                ("second", ("--expect", identity(first)), identity(first)),
                ("second", ("--expect", "model0"), "model.embed_tokens.weight"),
                ("flipped", (), "model.safetensors"),
                ("third", (), "third"),
            ):
                answer = asked.run(*at[tag], *words)
                assert answer["status"] == 1 and mention in answer["err"] and answer["err"].count("\n") == 1
    with client(environment(hub.url, tmp_path / "home", "hf_alice", HF_HUB_OFFLINE=1), tmp_path) as asked:
        assert [asked.run(*at[tag])["status"] for tag in ("first", "third")] == [0, 1]
