"""What is published: the right class with all of its weights, what makes its inputs, and its history."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, ViTImageProcessorPil, Wav2Vec2FeatureExtractor

import qkv
import tiny
from qkv.scripts.publishing.hub.options import PublishOptions
from qkv.scripts.publishing.hub.package import TrainedModel, built_folder, read_model_source, saved_processors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = qkv.QkvDecoderForSequenceClassification(tiny.decoder())
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def read_source(source: object, **options: object) -> TrainedModel:
    return read_model_source(source, PublishOptions(**options))


def tokenizer() -> PreTrainedTokenizerFast:
    words = WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="[UNK]")


def test_a_folder_gives_its_head_its_weights_and_its_tokenizer(folder: Path) -> None:
    tokenizer().save_pretrained(folder)
    (folder / "certificate.json").write_text('{"passed": true}')
    source = read_source(folder)
    assert type(source.model) is qkv.QkvDecoderForSequenceClassification
    stored = load_file(folder / "model.safetensors")
    assert stored and all(torch.equal(source.model.state_dict()[name], value) for name, value in stored.items())
    assert [type(processor) for processor in source.processors] == [PreTrainedTokenizerFast]
    assert source.record is None and source.certificate == {"passed": True}


def test_a_run_folder_gives_its_model_and_its_record(folder: Path) -> None:
    run = folder.parent
    assert read_source(run).record is None
    (run / "record.json").write_text("{}")
    assert read_source(run).record == run / "record.json"
    assert read_source(folder).record is None
    assert read_source(folder, record=run).record == run / "record.json"


def test_a_model_is_itself(folder: Path) -> None:
    model, reader = qkv.QkvEncoderModel(tiny.encoder()), tokenizer()
    assert read_source(model).model is model and read_source(model).processors == []
    assert read_source(model, processor=reader).processors == [reader]
    assert read_source(folder, processor=(reader, reader)).processors == [reader, reader]


def test_the_precision_is_that_of_the_files_or_the_one_that_is_asked_for(folder: Path) -> None:
    (folder / "certificate.json").write_text("{}")
    recast = read_source(folder, dtype="bfloat16")
    assert recast.model.dtype == torch.bfloat16 and recast.certificate is None, "it is of other numbers"
    recast.model.save_pretrained(folder)
    assert read_source(folder).model.dtype == torch.bfloat16


def test_every_kind_of_processor_is_found_by_its_file(tmp_path: Path) -> None:
    assert saved_processors(tmp_path) == []
    ViTImageProcessorPil().save_pretrained(tmp_path)
    assert [type(reader) for reader in saved_processors(tmp_path)] == [ViTImageProcessorPil]
    tokenizer().save_pretrained(tmp_path)
    assert [type(reader) for reader in saved_processors(tmp_path)] == [PreTrainedTokenizerFast, ViTImageProcessorPil]
    Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    assert [type(reader) for reader in saved_processors(tmp_path)][1] is Wav2Vec2FeatureExtractor


def test_what_is_no_qkv_model_is_refused_with_a_remedy(folder: Path) -> None:
    official = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8))
    with pytest.raises(ValueError, match=r"BertModel is a bert model, .*`qkv.from_transformers\(model\)` makes it one"):
        read_source(official)
    official.save_pretrained(folder / "bert")
    with pytest.raises(ValueError, match="BertModel is a bert model, .*`qkv convert .* DST` makes it one"):
        read_source(folder / "bert")
    with pytest.raises(ValueError, match="there is no folder .*bar; name one .*; did you mean .*bert"):
        (folder / "bar-2-bert").mkdir()
        read_source(folder / "bar")
    with pytest.raises(ValueError, match="there is no folder .*nowhere; .* run folder$"):
        read_source(folder / "nowhere")
    with pytest.raises(ValueError, match="there is no record at .*nowhere"):
        read_source(folder, record=folder / "nowhere")


def test_a_model_that_its_folder_does_not_hold_is_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "extra": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="has tensor extra, for which .* has no place"):
        read_source(folder)
    weights.popitem()
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match="has no tensor .*, which QkvDecoderForSequenceClassification needs"):
        read_source(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["QkvDecoderForFlying"]}))
    with pytest.raises(ValueError, match="this qkv has no QkvDecoderForFlying"):
        read_source(folder)


def test_a_model_folder_is_not_a_built_one(folder: Path) -> None:
    assert built_folder(folder) is None
    assert built_folder(qkv.QkvEncoderModel(tiny.encoder())) is None
