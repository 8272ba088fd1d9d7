"""What is said of the same model in transformers: the page's rows of its class, or the certificate of its weights."""

from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedConfig

import qkv
from qkv.scripts.conversion.certificate import certify
from qkv.scripts.publishing.card.card import plain_card
from qkv.scripts.publishing.card.parity import PAGE

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
FOUND = {
    "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
    "limits": {"float64": 1e-10, "bfloat16": None},
    "source": {"class": "GPT2LMHeadModel", "parameters": 4321},
    "target": {"class": "QkvDecoderForCausalLM", "parameters": 4321},
    "layers": {
        "layers.0": {"float64": {"max": 1e-15, "scale": 1.0}, "bfloat16": {"max": 0.25, "scale": 100.0}},
        "logits": {"float64": {"max": 5e-14, "scale": 100.0}, "bfloat16": {"max": 0.5, "scale": 2.0}},
    },
    "generation": {"greedy": True, "3 beams": False},
    "way back": {"tensors": 28, "different": []},
    "first diverging layer": None,
}


def parity(config: PreTrainedConfig, architecture: str, certificate: dict | None = None) -> str:
    """The section on parity of a card, empty where it has none."""
    fields = {**config.to_dict(), "architectures": [architecture]}
    form = "self-contained" if architecture.startswith("Qkv") else "native"
    text = str(plain_card(fields, name="x", certificate=certificate, form=form))
    return text.partition("## Parity with transformers\n")[2].partition("\n## ")[0]


def certified(certificate: dict, architecture: str = "GPT2LMHeadModel") -> str:
    config = GPT2Config() if architecture.startswith("GPT2") else qkv.presets.gpt2(**TINY)
    return parity(config, architecture, certificate)


def test_the_rows_of_the_class_are_shown() -> None:
    text = parity(qkv.presets.gpt2(**TINY), "QkvDecoderForCausalLM")
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| GPT2LMHeadModel |")]
    assert rows and all(row in text for row in rows) and text.count("\n|") == len(rows) + 2
    assert "not on the weights of this one" in text
    (versions,) = [
        line for line in PAGE.read_text().splitlines() if line.startswith("transformers ") and "torch" in line
    ]
    assert f"*out*: back; with {versions[:-1]}):\n" in text


def test_nothing_is_said_where_there_is_no_such_class() -> None:
    assert parity(qkv.presets.gpt2(position="alibi", norm="rms", **TINY), "QkvDecoderForCausalLM") == ""


def test_the_certificate_is_told_by_its_worst_layers() -> None:
    text = certified(FOUND)
    assert "| float64 | 1.0e-15 | 1.0e+00 | `layers.0` | 1.0e-10 |" in text  # worse than 5e-14 at numbers of 100
    assert "| bfloat16 | 5.0e-01 | 2.0e+00 | `logits` | none |" in text
    assert "all 28 tensors are bit-identical" in text and "greedy equal, 3 beams **different**." in text
    assert "not the same model" not in text


def test_a_certificate_that_did_not_pass_says_so() -> None:
    failed = {**FOUND, "way back": {"tensors": 28, "different": ["a", "b"]}, "first diverging layer": "layers.0"}
    text = certified(failed, "QkvDecoderForCausalLM")
    assert "2 of 28 tensors are not bit-identical" in text
    assert "**They are not the same model**: `layers.0` is the first layer beyond its limit." in text


def test_what_is_no_certificate_of_this_model_is_refused() -> None:
    without = {name: value for name, value in FOUND.items() if name != "way back"}
    with pytest.raises(ValueError, match="this is no certificate of qkv convert --check: it has no 'way back'; give"):
        certified(without)
    with pytest.raises(ValueError, match="certificate is of GPT2LMHeadModel and QkvDecoderForCausalLM, and this model"):
        parity(qkv.presets.bert_base(**TINY), "QkvEncoderForMaskedLM", FOUND)
    with pytest.raises(ValueError, match="no certificate of qkv convert --check: it has no 'layers'"):
        certified({"target": {}})


def test_a_converted_model_has_a_card_with_its_certificate(tmp_path: Path) -> None:
    official = GPT2LMHeadModel(
        GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=20, bos_token_id=1, eos_token_id=2)
    )
    official.save_pretrained(tmp_path / "stock")
    model = qkv.from_transformers(official)
    model.save_pretrained(tmp_path / "own")
    certificate = certify(tmp_path / "stock", tmp_path / "own", step=lambda what: None)
    text = str(
        plain_card(
            model.config.to_dict() | {"architectures": [type(model).__name__]}, name="x", certificate=certificate
        )
    )
    assert "from `GPT2LMHeadModel` to `QkvDecoderForCausalLM`" in text and "tensors are bit-identical" in text
    assert (
        "Everything but parity: " in text
        and f"of {official.num_parameters():,} parameters" in text
        and "Generated tokens: greedy equal" in text
    )
