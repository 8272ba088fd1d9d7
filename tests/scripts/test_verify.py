"""`qkv verify`: one table, one sentence, and an exit status that tells; with a process that has no qkv."""

import json
import shutil
from pathlib import Path

import pytest
import transformers

from published import change_json
from qkv.scripts.cli import main
from qkv.scripts.common.inspector import Job
from qkv.scripts.publishing.integrity import clean_process
from qkv.scripts.publishing.integrity.clean_process import Loaded
from qkv.scripts.publishing.integrity.load_paths import loaded
from qkv.scripts.publishing.integrity.manifest import identity


@pytest.fixture
def folder(native: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(native, tmp_path / "hub"))


@pytest.fixture(params=["this process", pytest.param("another", marks=pytest.mark.slow)])
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loads without qkv are made; in this process they are made with it, which a stock model does not mind."""

    def elsewhere(jobs: list[Job]) -> list[Loaded]:
        return [loaded(getattr(transformers, job.auto_class), job.source, job.inputs, **job.options) for job in jobs]

    if request.param == "this process":
        monkeypatch.setattr(clean_process, "load_in_clean_process", elsewhere)


@pytest.mark.usefixtures("process")
def test_an_untouched_folder_passes_by_every_way(
    native: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(native), "--json", str(tmp_path / "found.json"), "--expect", str(native)]) == 0
    sentence = f"{native} is what its manifest says, identity {identity(native)}"
    assert capsys.readouterr().out.splitlines()[-1] == sentence
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["passed"] and found["target"] == str(native) and found["commit"] is None
    assert found["identity"] == identity(native)
    rows = {row["check"]: row for row in found["rows"]}
    assert {row["result"] for row in rows.values()} == {"passed"} and len(rows) == 16
    for name in (
        "LlamaForCausalLM, again",
        'AutoModelForCausalLM, device_map="auto"',
        "AutoModelForCausalLM, bfloat16",
    ):
        assert rows[name]["detail"].startswith("23 tensors equal")
    assert rows["without qkv, AutoModelForCausalLM"]["detail"] == "23 tensors equal, outputs equal bit by bit"
    assert rows["without qkv, AutoModelForCausalLM, bfloat16"]["detail"] == "23 tensors equal, outputs finite"
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_a_corrupted_folder_is_named_in_table_and_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_json(folder / "config.json", rms_norm_eps=0.5)
    assert main(["verify", str(folder), "--json", str(folder / "found.json")]) == 1
    printed = capsys.readouterr()
    sentence = "config.json: field rms_norm_eps is 0.5, the manifest says 1e-06"
    assert printed.err.startswith(f"qkv: {folder} is not what its manifest says: ") and printed.err.count("\n") == 1
    assert sentence in printed.err and "FAILED" in printed.out and "rms_norm_eps" in printed.out
    found = json.loads((folder / "found.json").read_text())
    assert not found["passed"] and [row["findings"] for row in found["rows"] if row["check"] == "config"] == [
        [sentence]
    ]


def test_brackets_in_names_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a[red]b.txt").touch()
    assert main(["verify", str(folder)]) == 1
    assert "a[red]b.txt is not in the" in capsys.readouterr().out


def test_mistakes_are_one_sentence(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for words, sentence in (
        ((tmp_path / "nowhere",), f"folder {tmp_path / 'nowhere'} does not exist"),
        (
            ("nobody/nothing",),
            "nobody/nothing is neither a folder here nor a checkpoint that the Hub gives: it is not in",
        ),
        ((folder, "--revision", "v1"), f"{folder} is a folder, which has no revision v1; leave --revision out"),
        ((folder, "--expect", "0"), "'0' is neither a folder nor an identity, which has 16 to 64 digits 0-9 a-f"),
        ((folder, "--expect", tmp_path), f"{tmp_path} has no qkv_manifest.json to compare it with"),
        ((), "the following arguments are required: TARGET; see qkv verify --help"),
        (
            (folder, "--json", tmp_path / "no" / "where"),
            f"there is no folder {tmp_path / 'no'} for --json; make it first",
        ),
    ):
        assert main(["verify", *map(str, words)]) == 1
        printed = capsys.readouterr()
        assert printed.err.startswith(f"qkv: {sentence}") and printed.err.count("\n") == 1 and not printed.out
