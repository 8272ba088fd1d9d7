"""Publishing to a folder: both forms, screened, whole or not at all; the Hub's part is in tests/scripts/test_publish.py."""

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.testing_utils import CaptureLogger

import keys
import qkv
import tiny
from errors import raises_sentence
from published import age
from qkv.scripts.publishing.export.flatten import flatten
from qkv.scripts.publishing.export.tested_releases import TESTED, spelled, stated_releases
from qkv.scripts.publishing.hub.callback import CodeCallback, logger
from qkv.scripts.publishing.hub.options import Published, PublishOptions
from qkv.scripts.publishing.hub.package import TrainedModel, read_model_source
from qkv.scripts.publishing.hub.publish import destination
from qkv.scripts.publishing.integrity.manifest import SIGNATURE, read_manifest
from qkv.scripts.publishing.integrity.signature import signature_row

RECORD = Path(__file__).parents[3] / "model_cards" / "digits" / "record.json"
TOKEN = "hf_" + "a1B2" * 9
CONFIG = qkv.QkvDecoderConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=20)


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
        ("/a/name", Path("/a/name")),
        ("~/name", Path.home() / "name"),
    ],
)
def test_a_target_is_a_folder_or_a_name_on_the_hub(target: Any, expected: Any) -> None:
    assert destination(target) == expected
    for wrong in ("name", "user/na me", "a/b/c"):
        with pytest.raises(ValueError, match=repr(wrong)):
            destination(wrong)


def test_a_folder_that_exists_is_no_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert destination("user/name") == Path("user/name")


class Forms(NamedTuple):
    model: Any
    own: Published
    native: Published


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Forms:
    place, source, reader = tmp_path_factory.mktemp("forms"), model(), tokenizer()
    own = qkv.publish(source, place / "own", processor=reader, other="user/native")
    return Forms(source, own, qkv.publish(source, place / "native", processor=reader, native=True, other="user/own"))


def test_both_forms_are_whole_and_hold_the_same_model(forms: Forms) -> None:
    for published, other in ((forms.own, "user/native"), (forms.native, "user/own")):
        names = {path.relative_to(published.folder).as_posix() for path in published.folder.rglob("*")}
        assert names == set(published.files)
        assert {"LICENSE", "README.md", "config.json", "qkv_manifest.json", "tokenizer.json"} <= names
        assert f"(https://huggingface.co/{other})" in (published.folder / "README.md").read_text()
    assert list(forms.own.folder.glob("modeling_*.py")) and not list(forms.native.folder.glob("*.py"))
    stock = AutoModelForMaskedLM.from_pretrained(forms.native.folder).eval()
    ours = AutoModelForMaskedLM.from_pretrained(forms.own.folder).eval()
    assert type(stock) is BertForMaskedLM
    inputs = {"input_ids": tiny.text()["input_ids"][:1]}  # positions of padding differ
    with torch.no_grad():
        assert torch.equal(ours(**inputs).logits, forms.model(**inputs).logits)
        assert torch.allclose(stock(**inputs).logits, forms.model(**inputs).logits, atol=1e-5, rtol=0)


def test_a_built_folder_is_published_as_it_is_and_only_if_it_is_whole(forms: Forms, tmp_path: Path) -> None:
    built = forms.own.folder
    copied = qkv.publish(built, tmp_path / "b")
    assert copied.as_built and not forms.own.as_built
    for name in forms.own.files | copied.files:
        assert (copied.folder / name).read_bytes() == (built / name).read_bytes()
    for option in ("dtype", "max_shard_size", "other", "processor"):
        with raises_sentence(option):
            qkv.publish(built, tmp_path / "c", **{option: "float16"})
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    (tmp_path / "b" / "config.json").write_text(json.dumps({**config, "norm_eps": 1e-3}))
    with pytest.raises(qkv.IntegrityError, match="config.json"):
        qkv.publish(tmp_path / "b", tmp_path / "c")
    assert {path.name for path in tmp_path.iterdir()} == {"b"}


def test_older_code_is_built_again_under_its_card(tmp_path: Path) -> None:
    """That a run has the card of its record: test_folder.py."""
    built = qkv.publish(model(), tmp_path / "built", processor=tokenizer()).folder
    age(built)
    before, done = read_manifest(built), qkv.publish(built, tmp_path / "again")
    manifest, card = read_manifest(done.folder), (built / "README.md").read_text()
    assert not done.as_built and stated_releases(done.folder) == TESTED
    assert manifest["loaded"] == before["loaded"] and manifest["files"].keys() == before["files"].keys()
    expected = card.replace(before["identity"], done.identity).replace("5.22 to 5.23.", f"{spelled(TESTED)}.")
    assert (done.folder / "README.md").read_text() == expected != card


def test_a_folder_is_signed(forms: Forms, tmp_path: Path) -> None:
    """A new one, and one that was built before, which itself stays as it is."""
    private, public = keys.pair(tmp_path)
    before = {path: path.read_bytes() for path in forms.own.folder.rglob("*") if path.is_file()}
    for source, name in ((model(), "new"), (forms.own.folder, "copy"), (tmp_path / "copy", "again")):
        assert SIGNATURE in qkv.publish(source, tmp_path / name, sign=private).files
        assert signature_row(tmp_path / name, public).findings == []
    assert {path: path.read_bytes() for path in forms.own.folder.rglob("*") if path.is_file()} == before
    assert qkv.publish(tmp_path / "copy", tmp_path / "signed before").as_built


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sign": "nowhere.pem"}, "nowhere.pem"),
        ({"record": "nowhere"}, "nowhere"),
        ({"record": RECORD}, "record.json"),
        ({"private": False}, "private"),
        ({"pull_request": True}, "pull_request"),
        ({"revision": "next"}, "revision"),
        ({"processor": tokenizer(**{TOKEN: 2}), "native": True}, "tokenizer.json"),
    ],
    ids=str,
)
def test_a_refusal_leaves_nothing(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as error:
        qkv.publish(model(), tmp_path / "x", **options)
    assert TOKEN not in str(error.value) and list(tmp_path.iterdir()) == []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    qkv.QkvDecoderForSequenceClassification(tiny.decoder()).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def read_source(source: object, **options: object) -> TrainedModel:
    return read_model_source(source, PublishOptions(**options))


def test_a_folder_gives_its_head_weights_tokenizer_record_and_certificate(saved: Path) -> None:
    tokenizer().save_pretrained(saved)
    (saved / "certificate.json").write_text('{"passed": true}')
    (saved / "record.json").write_text("{}")
    source = read_source(saved)
    assert type(source.model) is qkv.QkvDecoderForSequenceClassification
    stored = load_file(saved / "model.safetensors")
    assert stored and all(torch.equal(source.model.state_dict()[name], value) for name, value in stored.items())
    assert source.processors == [] and {"tokenizer.json", "tokenizer_config.json"} <= source.files.keys()
    assert source.record == saved / "record.json" and source.certificate == {"passed": True}
    recast = read_source(saved, dtype="bfloat16")
    assert recast.model.dtype == torch.bfloat16 and recast.certificate is None, "it is of other numbers"
    recast.model.save_pretrained(saved)
    (other := saved.parent / "other.json").write_text("{}")
    source = read_source(saved, processor=(reader := tokenizer(), reader), record=other)
    assert source.model.dtype == torch.bfloat16 and source.record == other and source.processors == [reader, reader]
    assert source.files.keys() <= {"LICENSE"}


def test_other_models_and_missing_weights_are_refused(saved: Path) -> None:
    official = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8))
    official.save_pretrained(saved / "bert")
    (saved / "bar-2-bert").mkdir()
    for source, words in (
        (official, "qkv.from_transformers"),
        (saved / "bert", "qkv convert"),
        (saved / "bar", "bar-2-bert"),
        (saved / "nowhere", "nowhere"),
    ):
        with raises_sentence(words):
            read_source(source)
    weights = load_file(saved / "model.safetensors")
    save_file({**weights, "extra": torch.zeros(1)}, saved / "model.safetensors")
    with raises_sentence("extra"):
        read_source(saved)
    name, _ = weights.popitem()
    save_file(weights, saved / "model.safetensors")
    with raises_sentence(name):
        read_source(saved)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "architectures": ["QkvDecoderForFlying"]}))
    with raises_sentence("QkvDecoderForFlying"):
        read_source(saved)


def begin(folder: Path, trained: Any, *, is_zero: bool = True) -> None:
    """Begin a training, as a `Trainer` does it."""
    arguments = TrainingArguments(str(folder), report_to="none", use_cpu=True)
    handler = Trainer(trained, arguments, callbacks=[CodeCallback()]).callback_handler
    handler.on_train_begin(arguments, TrainerState(is_world_process_zero=is_zero), TrainerControl())


def test_code_that_cannot_be_copied_stops_a_trainer_and_lets_a_model_be_saved(tmp_path: Path) -> None:
    trained = qkv.QkvDecoderForCausalLM(copy.deepcopy(CONFIG))
    trained.config.auto_map = {"AutoModel": "modeling_nowhere.Model"}
    with raises_sentence("auto_map"):
        begin(tmp_path, trained)
    trained.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py")) and (tmp_path / "model.safetensors").is_file()


def test_files_of_somebody_else_stay(tmp_path: Path) -> None:
    theirs = {"LICENSE": "mine", "modeling_decoder.py": "print('mine')"}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text)
    with CaptureLogger(logger) as warnings:
        qkv.QkvDecoderForCausalLM(copy.deepcopy(CONFIG)).save_pretrained(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in theirs} == theirs
    assert str(tmp_path / "modeling_decoder.py") in warnings.out


@pytest.mark.parametrize(("is_zero", "is_ours"), [(True, True), (False, True), (True, False)])
def test_one_process_writes_the_code_of_our_models(tmp_path: Path, is_zero: bool, is_ours: bool) -> None:
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    trained = qkv.QkvDecoderForCausalLM(CONFIG) if is_ours else BertModel(BertConfig(**shape))
    begin(tmp_path, trained, is_zero=is_zero)
    expected = set(flatten(CONFIG).files) | {"LICENSE"} if is_zero and is_ours else set()
    assert {path.name for path in tmp_path.iterdir()} == expected
