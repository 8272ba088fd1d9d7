"""Publishing to a folder: both forms, screened, whole or not at all; the Hub's part is in tests/scripts/test_publish.py."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForMaskedLM, BertForMaskedLM, PreTrainedTokenizerFast, ViTImageProcessorPil

import keys
import qkv
import tiny
from published import forget_releases
from qkv.scripts.publishing.export.tested_releases import TESTED, spelled, stated_releases
from qkv.scripts.publishing.hub.options import Published
from qkv.scripts.publishing.hub.publish import destination
from qkv.scripts.publishing.hub.screen import UnfitError
from qkv.scripts.publishing.integrity.bundle import SIGNATURE, statement
from qkv.scripts.publishing.integrity.manifest import read_manifest
from qkv.scripts.publishing.integrity.signature import signature_row
from sampling import sampled
from tiny import Case

RECORD = Path(__file__).parents[4] / "model_cards" / "digits" / "record.json"
TOKEN = "hf_" + "a1B2" * 9


def model() -> Any:
    torch.manual_seed(0)
    return tiny.jitter(qkv.QkvEncoderForMaskedLM(tiny.encoder())).eval()


def tokenizer(**words: int) -> PreTrainedTokenizerFast:
    known = WordLevel({"[UNK]": 0, "[MASK]": 1, **words}, unk_token="[UNK]")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(known), unk_token="[UNK]", mask_token="[MASK]")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("user/name", "user/name"),
        (Path("user/name"), Path("user/name")),
        ("./name", Path("name")),
        ("../name", Path("../name")),
        ("/a/name", Path("/a/name")),
        ("~/name", Path.home() / "name"),
    ],
)
def test_a_target_is_a_folder_or_a_name_on_the_hub(target: Any, expected: Any) -> None:
    assert destination(target) == expected


def test_a_folder_that_is_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert destination("user/name") == Path("user/name")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("name", "'name' is neither a folder nor user/name; write ./name for a new folder"),
        ("user/na me", "'user/na me' is no name for a repository"),
        ("a/b/c", "'a/b/c' is no name for a repository"),
    ],
)
def test_what_is_neither_is_refused(target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        destination(target)


@dataclass
class Forms:
    """A model, and its folder in both forms."""

    model: Any
    own: Published
    native: Published


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Forms:
    place, source, reader = tmp_path_factory.mktemp("forms"), model(), tokenizer()
    own = qkv.publish(source, place / "own", processor=reader, other="user/native")
    return Forms(source, own, qkv.publish(source, place / "native", processor=reader, native=True, other="user/own"))


def test_both_forms_are_whole_and_say_which_they_are(forms: Forms) -> None:
    assert forms.own.commit is forms.own.url is None
    for published in (forms.own, forms.native):
        names = {path.relative_to(published.folder).as_posix() for path in published.folder.rglob("*")}
        assert names == {change.name for change in published.changes}
        assert {"LICENSE", "README.md", "config.json", "qkv_manifest.json", "tokenizer.json"} <= names
    cards = [(published.folder / "README.md").read_text() for published in (forms.own, forms.native)]
    assert "self-contained form" in cards[0] and "(https://huggingface.co/user/native)" in cards[0]
    assert "native form" in cards[1] and "(https://huggingface.co/user/own)" in cards[1]
    assert list(forms.own.folder.glob("modeling_*.py")) and not list(forms.native.folder.glob("*.py"))


def test_both_forms_hold_the_same_model(forms: Forms) -> None:
    stock = AutoModelForMaskedLM.from_pretrained(forms.native.folder).eval()
    ours = AutoModelForMaskedLM.from_pretrained(forms.own.folder).eval()
    assert type(stock) is BertForMaskedLM
    inputs = {"input_ids": tiny.text()["input_ids"][:1]}  # what padding is given as positions differs
    with torch.no_grad():
        assert torch.equal(ours(**inputs).logits, forms.model(**inputs).logits)
        assert torch.allclose(stock(**inputs).logits, forms.model(**inputs).logits, atol=1e-5, rtol=0)


def test_a_form_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stock transformers has no such model: .*pattern"):
        qkv.publish(qkv.QkvDecoderForCausalLM(tiny.decoder("sparse")), tmp_path / "x", native=True)
    assert list(tmp_path.iterdir()) == []


def run_folder(place: Path) -> Path:
    """A finished run, of the model whose card is published."""
    record = json.loads(RECORD.read_text())
    config = qkv.QkvImageEncoderConfig.from_dict(record["config"])
    qkv.QkvImageEncoderForImageClassification(config).save_pretrained(place / "model")
    ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(place / "model")
    (place / "record.json").write_text(json.dumps(record))
    for picture in RECORD.parent.glob("*.png"):
        shutil.copy(picture, place)
    return place


def test_a_run_is_published_with_its_card(tmp_path: Path) -> None:
    published = qkv.publish(run_folder(tmp_path / "run"), tmp_path / "hub")
    card = (published.folder / "README.md").read_text()
    assert "97." in card and "image-classification" in card
    names = {path.name for path in published.folder.iterdir()}
    assert {"preprocessor_config.json", "curve.png", "attention.png"} <= names and "record.json" not in names


def test_the_record_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"record.json is of a model with 152,714 parameters and this one has"):
        qkv.publish(model(), tmp_path / "x", record=RECORD)
    assert list(tmp_path.iterdir()) == []


def test_a_built_folder_is_published_as_it_is_and_only_if_it_is_whole(forms: Forms, tmp_path: Path) -> None:
    built = forms.own.folder
    copied = qkv.publish(built, tmp_path / "b")
    assert copied.as_built and not forms.own.as_built
    assert {change.name: change.sha256 for change in copied.changes} == {
        change.name: change.sha256 for change in forms.own.changes
    }
    with pytest.raises(ValueError, match="own is built already, too late for dtype; name the model it was built of"):
        qkv.publish(built, tmp_path / "c", dtype="float16")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    (tmp_path / "b" / "config.json").write_text(json.dumps({**config, "norm_eps": 1e-3}))
    with pytest.raises(qkv.IntegrityError, match="b is not what was built: .*config.json"):
        qkv.publish(tmp_path / "b", tmp_path / "c")
    assert {path.name for path in tmp_path.iterdir()} == {"b"}


def test_a_built_folder_with_older_code_is_built_again_and_keeps_its_card(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    built = qkv.publish(run, tmp_path / "built").folder
    forget_releases(built)
    before = read_manifest(built)
    done = qkv.publish(built, tmp_path / "again")
    manifest = read_manifest(done.folder)
    assert not done.as_built and manifest["transformers"] == stated_releases(done.folder) == TESTED
    assert manifest["tensors"] == before["tensors"] and manifest["files"].keys() == before["files"].keys()
    card = (built / "README.md").read_text()
    assert "97." in card and card.count(before["identity"]) == 1
    assert (done.folder / "README.md").read_text() == card.replace(before["identity"], done.identity)
    of_record = qkv.publish(built, tmp_path / "of its record", record=run)
    assert f"transformers {spelled(TESTED)}." in (of_record.folder / "README.md").read_text()


def test_a_folder_is_signed(forms: Forms, tmp_path: Path) -> None:
    """A new one, and one that was built before, which itself stays as it is."""
    private, public = keys.pair(tmp_path)
    before = {path: path.read_bytes() for path in forms.own.folder.rglob("*") if path.is_file()}
    for source, name in ((model(), "new"), (forms.own.folder, "copy"), (tmp_path / "copy", "again")):
        published = qkv.publish(source, tmp_path / name, sign=private)
        assert SIGNATURE in {change.name for change in published.changes}
        row = signature_row(tmp_path / name, public)
        assert row.findings == [] and row.detail.startswith(f"all {len(published.changes) - 1} files are")
        assert [subject["name"] for subject in statement(tmp_path / name / SIGNATURE)["subject"]] == [name]
    assert {path: path.read_bytes() for path in forms.own.folder.rglob("*") if path.is_file()} == before
    assert qkv.publish(tmp_path / "copy", tmp_path / "signed before").as_built
    assert signature_row(tmp_path / "signed before", public).findings == []


def test_a_key_that_cannot_sign_stops_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no private key at nowhere.pem"):
        qkv.publish(tmp_path / "no model", tmp_path / "x", sign="nowhere.pem")


def test_options_of_the_hub_are_refused_for_a_folder(tmp_path: Path) -> None:
    for options in ({"private": True}, {"revision": "x"}, {"tag": "x"}, {"dry_run": True}, {"pull_request": True}):
        with pytest.raises(ValueError, match=f"x is a folder, and {next(iter(options))} is for the Hub; leave it out"):
            qkv.publish(model(), tmp_path / "x", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_secret_keeps_the_folder_from_being_written(tmp_path: Path) -> None:
    clause = r"tokenizer.json holds a Hugging Face token \(model.vocab, a key\)"
    with pytest.raises(UnfitError, match=clause) as error:
        qkv.publish(model(), tmp_path / "x", processor=tokenizer(**{TOKEN: 2}), native=True)
    assert TOKEN not in str(error.value) and list(tmp_path.iterdir()) == []


def passes(case: Case, place: Path) -> None:
    assert qkv.publish(case.build(), place / "x", processor=tokenizer()).changes
    shutil.rmtree(place / "x")


# Encoders are in the tests above.
OTHERS = {
    case.model_class.config_class: case
    for case in tiny.CASES
    if "Encoder" not in case.name[:8] or "Decoder" in case.name
}


@pytest.mark.parametrize("case", sampled(OTHERS.values(), 2), ids=lambda case: case.name)
def test_every_family_passes_the_screen(case: Case, tmp_path: Path) -> None:
    passes(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", tiny.CASES, ids=lambda case: case.name)
def test_every_head_passes_the_screen(case: Case, tmp_path: Path) -> None:
    passes(case, tmp_path)
