"""The releases of transformers that code was tested with: stated in the folder, and a warning where it is older."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers
from transformers import AutoModelForMaskedLM
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

import installation
import qkv
import tiny
from checkout import ROOT
from published import forget_releases
from qkv.scripts.publishing.export.tested_releases import (
    TESTED,
    UNSTATED,
    is_outdated,
    logger,
    spelled,
    stated_releases,
    untested,
    warn_of_outdated_code,
)
from qkv.scripts.publishing.integrity.manifest import read_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    qkv.publish(qkv.QkvEncoderForMaskedLM(tiny.encoder()), tmp_path / "hub")
    return tmp_path / "hub"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers, "__version__", f"{TESTED['newest']}.1.dev0")


def test_the_oldest_is_the_floor_and_the_newest_the_one_that_tests_install() -> None:
    floor = next(each for each in installation.requirements() if each.name == "transformers").specifier
    assert f">={TESTED['oldest']}" in map(str, floor)
    assert f"\ntransformers=={TESTED['newest']}." in (ROOT / "constraints.txt").read_text()


def test_code_manifest_and_card_of_a_new_folder_state_them(folder: Path) -> None:
    assert stated_releases(folder) == read_manifest(folder)["transformers"] == TESTED
    assert f"tested with transformers {TESTED['oldest']} to {TESTED['newest']}." in (folder / "README.md").read_text()
    qkv.QkvEncoderModel(tiny.encoder()).save_pretrained(folder / "saved")
    assert stated_releases(folder / "saved") == TESTED and not untested(folder, TESTED)


def test_a_stock_model_and_code_of_others_have_none(tmp_path: Path) -> None:
    qkv.publish(qkv.QkvEncoderForMaskedLM(tiny.encoder()), tmp_path / "hub", native=True)
    (tmp_path / "modeling_mine.py").write_text("# Tested with transformers 5.23 to 5.23.\n")
    assert stated_releases(tmp_path) is stated_releases(tmp_path / "hub") is None
    assert "transformers" not in json.loads((tmp_path / "hub" / "qkv_manifest.json").read_text())
    assert "tested with transformers" not in (tmp_path / "hub" / "README.md").read_text()


def test_older_code_states_one_release_and_is_outdated(folder: Path) -> None:
    forget_releases(folder)
    assert stated_releases(folder) == UNSTATED and spelled(UNSTATED) == "5.23"
    assert is_outdated(UNSTATED) and not is_outdated(TESTED) and not is_outdated(None)


@pytest.mark.parametrize(
    ("version", "tested", "says"),
    [
        ("5.23.3", UNSTATED, ""),
        ("5.24.0", UNSTATED, "qkv publish {folder} TARGET"),
        ("6.0.0", TESTED, "install a qkv"),
        ("5.3.0", {"oldest": "5.23", "newest": "5.30"}, ""),
        ("6.0.0", None, ""),
    ],
)
def test_what_mends_code_that_was_not_tested_with_the_installed_release(
    version: str, tested: dict[str, str] | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "__version__", version)
    sentence = untested(tmp_path, tested)
    assert bool(sentence) == bool(says) and says.format(folder=tmp_path) in sentence
    assert not says or (version in sentence and f"transformers {spelled(tested)} and" in sentence)


@pytest.fixture
def verbosity() -> Iterator[None]:
    """The verbosity that transformers starts with, whatever another test has left."""
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    yield
    logging.set_verbosity(before)


def test_loading_warns_once_for_a_folder_with_older_code(folder: Path, verbosity: None) -> None:
    with CaptureLogger(logger) as said:
        AutoModelForMaskedLM.from_pretrained(folder)
    assert said.out == ""
    forget_releases(folder)
    logging.set_verbosity_error()
    with CaptureLogger(logger) as said:
        warn_of_outdated_code(folder)
    logging.set_verbosity_warning()
    assert said.out == ""
    with CaptureLogger(logger) as said:
        for source in (folder, str(folder)):
            AutoModelForMaskedLM.from_pretrained(source)
        AutoModelForMaskedLM.from_pretrained(folder.parent, subfolder=folder.name)
    assert said.out.count("\n") == 1 and untested(folder, UNSTATED) in said.out
