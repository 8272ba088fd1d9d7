"""`qkv convert`: both ways, whole or not at all, and a certificate that tells a wrong model from a right one."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoImageProcessor, AutoTokenizer, PreTrainedModel

import qkv
from families import variant
from families.base import Row
from qkv.scripts.cli import main
from qkv.scripts.conversion import checkpoint
from sampling import sampled

BERT, GPT2, LLAMA, BART, VIT = (
    variant(*names, "")
    for names in (
        ("bert", "ForMaskedLM"),
        ("gpt2", "LMHeadModel"),
        ("llama", "ForCausalLM"),
        ("bart", "ForConditionalGeneration"),
        ("vit", "ForImageClassification"),
    )
)
SENSES = [
    variant(*names, "")
    for names in (
        ("whisper", "ForConditionalGeneration"),
        ("speech_to_text", "ForConditionalGeneration"),
        ("clip", "Model"),
        ("detr", "ForObjectDetection"),
    )
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]


def saved(row: Row, folder: Path, **options: Any) -> Path:
    """An official checkpoint in a folder of its own, so that its neighbours can be counted."""
    row.build().save_pretrained(folder / "source", **options)
    return folder / "source"


def tensors(folder: Path) -> dict[str, str]:
    """The SHA-256 of every stored tensor."""
    found = {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}
    return {
        name: hashlib.sha256(tensor.flatten().view(torch.uint8).numpy()).hexdigest() for name, tensor in found.items()
    }


def run(*words: Any) -> int:
    return main(["convert", *map(str, words)])


@pytest.mark.parametrize("row", [GPT2, *sampled([BART, *SENSES], 5)], ids=str)
@pytest.mark.costly(1)
def test_there_and_back_changes_nothing(row: Row, tmp_path: Path) -> None:
    source = saved(row, tmp_path, max_shard_size="30kB")
    assert run(source, tmp_path / "ours", "--check") == 0
    assert run(tmp_path / "ours", tmp_path / "back", "--to", "stock", "--check") == 0
    assert tensors(tmp_path / "back") == tensors(source) != tensors(tmp_path / "ours")
    for name in ("ours", "back"):
        assert len(list((tmp_path / name).glob("model-*.safetensors"))) > 1, "sharded as the source was"
    assert {path.name for path in tmp_path.iterdir()} == {"source", "ours", "back"}
    back = transformers.AutoConfig.from_pretrained(tmp_path / "back")
    assert back.architectures == [row.class_name]


def test_the_younger_of_two_names_of_a_model_is_asked_for(tmp_path: Path) -> None:
    source = saved(variant("data2vec-text", "ForMaskedLM", ""), tmp_path)
    assert run(source, tmp_path / "ours", "--check") == 0  # the way back is to a Data2Vec, and no RoBERTa
    assert run(tmp_path / "ours", tmp_path / "back", "--to", "data2vec-text") == 0
    assert tensors(tmp_path / "back") == tensors(source)
    assert run(source, tmp_path / "other", "--to", "roberta") == 1


def test_the_certificate_says_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = saved(LLAMA, tmp_path), tmp_path / "ours"
    assert run(source, target, "--check") == 0
    found = json.loads((target / "certificate.json").read_text())
    assert found["passed"] and found["first diverging layer"] is None
    assert list(found["layers"]) == ["embedding", "layers.0", "layers.1", "logits"]
    for measured in found["layers"].values():
        assert measured["float64"]["max"] <= 1e-12 and measured["float32"]["max"] <= 1e-6
        assert measured["bfloat16"]["max"] <= 0.2 * measured["bfloat16"]["scale"]
    assert found["generation"] == {"greedy": True, "3 beams": True}
    assert found["way back"] == {"tensors": 21, "different": []}
    assert found["source"]["parameters"] == found["target"]["parameters"] == LLAMA.build().num_parameters()
    assert found["command"] == f"qkv convert {source} {target} --check"
    assert found["versions"]["transformers"] == transformers.__version__
    assert found["files"].keys() | {"certificate.json"} == {path.name for path in target.iterdir()}
    for name, digest in found["files"].items():
        assert digest == hashlib.sha256((target / name).read_bytes()).hexdigest()
    printed = capsys.readouterr().out
    assert "layers.1" in printed and "one model" in printed and "0 of 21 tensors differ" in printed


def dropped_bias(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.down_proj.bias.data.zero_()


TAMPERED: list[tuple[Row, Callable[[Any], object], str]] = [
    # gelu for gelu_new: the smallest mistake there is.
    (GPT2, lambda model: setattr(model.config, "hidden_act", "gelu"), "the first diverging layer is layers.0 "),
    (GPT2, dropped_bias, "the first diverging layer is layers.1 "),
    # A token that none of the inputs has.
    (
        variant("bert", "Model", ""), lambda model: model.embed_tokens.weight.data[3].add_(1),
        "converted back, 1 tensors are others, embeddings.word_embeddings.weight",
    ),
]  # fmt: skip


def tamper(monkeypatch: pytest.MonkeyPatch, change: Callable[[PreTrainedModel], None]) -> None:
    original = checkpoint.read

    def read(model: PreTrainedModel, **options: Any) -> PreTrainedModel:
        ours = original(model, **options)
        change(ours)
        return ours

    monkeypatch.setattr(checkpoint, "read", read)


@pytest.mark.costly(1)
@pytest.mark.parametrize(("row", "change", "sentence"), TAMPERED)
def test_another_model_is_not_written(
    row: Row,
    change: Callable[[PreTrainedModel], None],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = saved(row, tmp_path)
    tamper(monkeypatch, change)
    capsys.readouterr()
    assert run(source, tmp_path / "ours", "--check") == 1
    printed = capsys.readouterr()
    assert sentence in printed.err and printed.err.startswith("qkv: ") and printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_force_writes_another_model_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(GPT2, tmp_path)
    tamper(monkeypatch, dropped_bias)
    assert run(source, tmp_path / "ours", "--check", "--force") == 0
    found = json.loads((tmp_path / "ours" / "certificate.json").read_text())
    assert not found["passed"] and found["first diverging layer"] == "layers.1"
    assert found["way back"]["different"] == ["transformer.h.1.mlp.c_proj.bias"]
    assert "DIFFERENT" in capsys.readouterr().out


@pytest.mark.slow
def test_weights_may_change_their_precision(tmp_path: Path) -> None:
    source = saved(GPT2, tmp_path)
    assert run(source, tmp_path / "ours", "--dtype", "bfloat16", "--check") == 0
    assert {tensor.dtype for tensor in load_file(tmp_path / "ours" / "model.safetensors").values()} == {torch.bfloat16}
    assert qkv.QkvDecoderForCausalLM.from_pretrained(tmp_path / "ours").dtype == torch.bfloat16


def test_a_config_that_denies_the_precision_of_its_weights_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers reads such a checkpoint in the config's precision, and would lose digits without a word."""
    source = saved(GPT2, tmp_path)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    assert run(source, tmp_path / "ours", "--check") == 1
    assert "converted back, 28 tensors are others" in capsys.readouterr().err
    assert run(source, tmp_path / "whole", "--dtype", "float32", "--check") == 0
    assert tensors(source).keys() and "float32" in (tmp_path / "whole" / "config.json").read_text()


@pytest.mark.parametrize("named", [True, False])
def test_the_tokenizer_arrives(tmp_path: Path, named: bool) -> None:
    """Old checkpoints leave it to their model type which class reads texts, and a qkv model has another."""
    source = saved(BERT, tmp_path)
    vocabulary = source / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    transformers.BertTokenizer(vocab=str(vocabulary)).save_pretrained(source)
    vocabulary.write_text("\n".join(WORDS))
    (source / "modeling_mine.py").write_text("raise SystemExit")
    config = json.loads((source / "config.json").read_text())
    code = {"AutoConfig": "modeling_mine.Mine", "AutoModelForMaskedLM": "modeling_mine.Mine"}
    (source / "config.json").write_text(json.dumps({**config, "auto_map": code}))
    if not named:
        (source / "tokenizer_config.json").unlink()
    assert run(source, tmp_path / "ours") == 0 and run(tmp_path / "ours", tmp_path / "back") == 0
    expected = AutoTokenizer.from_pretrained(source)
    for name in ("ours", "back"):
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / name)
        assert type(tokenizer) is type(expected)
        assert tokenizer("one two", "two").data == expected("one two", "two").data
        assert not (tmp_path / name / "modeling_mine.py").exists()


@pytest.mark.parametrize("named", [True, False])
def test_the_image_processor_arrives(tmp_path: Path, named: bool) -> None:
    source = saved(VIT, tmp_path)
    values = {"size": {"height": 12, "width": 12}, "image_mean": [0.1, 0.2, 0.3]}
    kind = {"image_processor_type": "ViTImageProcessor"} if named else {}
    (source / "preprocessor_config.json").write_text(json.dumps(values | kind))
    assert run(source, tmp_path / "ours") == 0
    expected, found = (AutoImageProcessor.from_pretrained(folder) for folder in (source, tmp_path / "ours"))
    assert type(found) is type(expected) and found.to_dict() == expected.to_dict()
