"""What is peculiar to the table of ESM-1b and ESM-2: contacts, rounded frequencies, files of their first release."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_parity import DOUBLE, SINGLE, assert_identical, double
from torch import Tensor
from transformers.models.esm.configuration_esm import get_default_vocab_list

import qkv
import tiny
from errors import raises_sentence
from families import variant
from families.inputs import tokens
from qkv.modeling.conversion.convert import read

STOCK_END = 2  # of which alone the stock contact head knows
ABSOLUTE = {"position_embedding_type": "absolute", "emb_layer_norm_before": True}


def proteins() -> dict[str, Tensor]:
    """Residues between a beginning and an end, some of them masked, padded on the right."""
    inputs = tokens(side="right")
    last = inputs["attention_mask"].sum(-1, keepdim=True) - 1
    ids = inputs["input_ids"].scatter(1, last, STOCK_END)
    return {**inputs, "input_ids": ids.index_fill(1, torch.tensor(0), 0)}


def contact_model(ours: Any) -> qkv.QkvEncoderForContactPrediction:
    """The contact head and the encoder below it, of any other head."""
    model = qkv.QkvEncoderForContactPrediction(ours.config)
    model.model.load_state_dict(ours.model.state_dict())
    return model.eval()


@torch.no_grad()
def contact_distance(**fields: Any) -> float:
    official = variant("esm", "ForMaskedLM", "", **fields).build()
    expected = official.predict_contacts(*proteins().values())
    return (contact_model(qkv.from_transformers(official))(**proteins()).logits.sigmoid() - expected).abs().max().item()


@pytest.mark.parametrize("fields", [{}, ABSOLUTE], ids=["rotary", "absolute"])
def test_contacts_are_those_of_predict_contacts(fields: dict[str, Any]) -> None:
    assert contact_distance(**fields) <= SINGLE
    with double():
        assert contact_distance(**fields) <= DOUBLE


@torch.no_grad()
def test_a_contact_head_goes_to_the_base_model_and_back() -> None:
    ours = contact_model(qkv.from_transformers(variant("esm", "ForMaskedLM", "").build()))
    official = qkv.to_transformers(ours)
    assert type(official) is transformers.EsmModel and official.pooler is None
    official.set_attn_implementation("eager")
    expected = official.predict_contacts(*proteins().values())
    assert (ours(**proteins()).logits.sigmoid() - expected).abs().max() <= SINGLE
    assert_identical(read(official, copies=True, wanted=type(ours)), ours)
    assert type(qkv.from_transformers(official)) is qkv.QkvEncoderModel


@pytest.mark.parametrize("rounded", ["float16", "bfloat16"])
@torch.no_grad()
def test_frequencies_stay_rounded_as_they_are_stored(rounded: str, tmp_path: Path) -> None:
    """ESM-2 was trained in half precision: its files hold frequencies of half precision in numbers of single."""
    official = variant("esm", "ForMaskedLM", "", hidden_size=64).build()
    frequencies = official.esm.rotary_embeddings.inv_freq
    frequencies.copy_(frequencies.to(getattr(torch, rounded)))
    ours = qkv.from_transformers(official)
    assert ours.config.rope_parameters["inv_freq_dtype"] == rounded
    ours.save_pretrained(tmp_path)
    assert_identical(qkv.to_transformers(type(ours).from_pretrained(tmp_path)), official)
    text = {"input_ids": torch.arange(300)[None] % 50 + 4}
    expected, plain = official(**text).logits, qkv.from_transformers(official)
    plain.config.rope_parameters.pop("inv_freq_dtype")
    assert (ours(**text).logits - expected).abs().max() <= SINGLE
    assert (plain(**text).logits - expected).abs().max() > 10 * SINGLE
    official.to(getattr(torch, rounded))
    assert qkv.from_transformers(official).config.rope_parameters["inv_freq_dtype"] == rounded


def test_frequencies_of_no_base_are_refused() -> None:
    official = variant("esm", "ForMaskedLM", "").build()
    official.esm.rotary_embeddings.inv_freq.mul_(1.01)
    with raises_sentence("inv_freq", "rope_theta=10000.0"):
        qkv.from_transformers(official)


def test_rounded_frequencies_are_no_llama() -> None:
    rope = {"rope_theta": 10000.0, "inv_freq_dtype": "float16"}
    model = qkv.QkvDecoderForCausalLM(tiny.decoder("llama", rope_parameters=rope))
    with raises_sentence("'inv_freq_dtype': 'float16'", "would become"):
        qkv.to_transformers(model)


def test_folders_of_the_first_release_are_read(tmp_path: Path) -> None:
    """With frequencies in each layer, a table of positions that nothing reads, and fields that are no longer declared."""
    official = variant("esm", "ForMaskedLM", "").build()
    official.save_pretrained(tmp_path)
    weights = {
        name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "inv_freq" not in name
    }
    for layer in range(2):
        name = f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"
        weights[name] = official.esm.rotary_embeddings.inv_freq.clone()
    weights["esm.embeddings.position_ids"] = torch.arange(24)[None]
    weights["esm.embeddings.position_embeddings.weight"] = torch.zeros(24, 32)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert_identical(qkv.from_transformers(tmp_path), qkv.from_transformers(official))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"is_decoder": True}, ("is_decoder=True",)),
        ({"is_decoder": True, "add_cross_attention": True}, ("add_cross_attention=True",)),
        ({"is_folding_model": True, "vocab_list": ["A"]}, ("is_folding_model=True",)),
        ({"position_embedding_type": "relative_key"}, ("relative_key",)),
    ],
    ids=["decoder", "cross-attention", "folding", "relative"],
)
def test_what_ours_has_no_words_for_is_refused(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    official = transformers.EsmModel(variant("esm", "Model", "", **fields).config())
    with raises_sentence(*words):
        qkv.from_transformers(official)


@pytest.mark.parametrize("head", ["outer_product", None])
def test_stock_models_have_the_contact_head_of_attention_maps(head: str | None) -> None:
    with raises_sentence(f"contact_head={head!r} would become 'attention'"):
        qkv.to_transformers(qkv.QkvEncoderForMaskedLM(tiny.encoder("maps", contact_head=head, attention_dropout=0.0)))


def test_the_tokenizer_of_proteins_goes_along(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(get_default_vocab_list()))
    transformers.EsmTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    qkv.QkvEncoderModel(qkv.configuration.presets.esm2_t6_8m(num_hidden_layers=1)).save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is transformers.EsmTokenizer
    given = tokenizer(["MKT", "MKTAY"], padding=True, return_tensors="pt")
    assert given["input_ids"].tolist() == [[0, 20, 15, 11, 2, 1, 1], [0, 20, 15, 11, 5, 19, 2]]
    model = qkv.QkvEncoderForContactPrediction.from_pretrained(tmp_path)
    assert model(**given).logits.shape == (2, 5, 5) and tokenizer.mask_token_id == model.config.mask_token_id
