"""What is peculiar to single architectures: fields under other names and sizes, weights beside them, old files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_parity import DOUBLE, SINGLE, assert_identical, double
from torch import Tensor, nn

import qkv
import tables
import tiny
from errors import raises_sentence
from families import variant
from families.inputs import END, PAD, text, tokens, translation
from qkv.modeling.conversion.config import canonical
from qkv.modeling.conversion.convert import frequencies, observe, of_another_head, read

TABLES = tables.beside(__file__)


def pair(model_type: str, head: str, **fields: Any) -> tuple[Any, Any]:
    official = variant(model_type, head, "", **fields).build()
    return official, qkv.from_transformers(official)


def value(config: Any, name: str) -> Any:
    part, _, field = name.rpartition(".")
    return canonical(getattr(getattr(config, part, config), field))


@pytest.mark.parametrize(("model_type", "head", "fields", "ours", "theirs"), TABLES["fields"], ids=str)
@pytest.mark.costly(16)
def test_fields(model_type: str, head: str, fields: Any, ours: Any, theirs: Any) -> None:
    converted = pair(model_type, head, **fields)[1]
    assert {name: value(converted.config, name) for name in ours} == {key: canonical(ours[key]) for key in ours}
    back = qkv.to_transformers(converted).config
    assert {name: value(back, name) for name in theirs} == {key: canonical(theirs[key]) for key in theirs}


def test_a_window_that_stock_longformer_cannot_compute_is_refused() -> None:
    ours = pair("longformer", "Model")[1]
    ours.config.sliding_window = 2
    with raises_sentence("sliding_window=2", "3"):
        qkv.to_transformers(ours)


# Fields that weights tell ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_weights_win_over_a_config_that_is_wrong_about_them(told: bool) -> None:
    config, table = tiny.encoder(tie_word_embeddings=not told), torch.ones(3, 2)
    observe(config, {"lm_head.decoder.weight": table, "model.embed_tokens.weight": table if told else table.clone()})
    assert config.tie_word_embeddings is told
    config = tiny.decoder(lm_head_bias=not told)
    observe(config, {"lm_head.weight": torch.ones(1)} | ({"lm_head.bias": torch.ones(1)} if told else {}))
    assert config.lm_head_bias is told


@pytest.mark.parametrize("tied", [None, False])
def test_t5_scales_its_head_where_it_is_tied(tied: bool | None) -> None:
    fields = {} if tied is None else {"tie_word_embeddings": tied}
    official = variant("t5", "ForConditionalGeneration", "", **fields).build()
    if tied is False:
        official.lm_head.weight = nn.Parameter(torch.randn_like(official.lm_head.weight))
    ours = qkv.from_transformers(official)
    assert ours.config.decoder.scale_logits == ours.config.tie_word_embeddings == (tied is None)
    back = qkv.to_transformers(ours)
    assert (back.lm_head.weight is back.shared.weight) == (tied is None)
    assert torch.equal(back.lm_head.weight, official.lm_head.weight)


@pytest.mark.parametrize(
    ("architecture", "head"),
    [("marian", "MTModel"), *((name, "ForConditionalGeneration") for name in ("bart", "mbart", "pegasus"))],
)
def test_a_bias_of_zeros_is_none(architecture: str, head: str) -> None:
    official, ours = pair(architecture, head)
    assert ours.config.decoder.lm_head_bias and torch.equal(ours.lm_head.bias, official.final_logits_bias[0])
    official.final_logits_bias.zero_()
    ours = qkv.from_transformers(official)
    assert not ours.config.decoder.lm_head_bias and ours.lm_head.bias is None
    assert torch.equal(qkv.to_transformers(ours).final_logits_bias, official.final_logits_bias)


def test_other_parts_come_along_or_stay_out() -> None:
    official, ours = pair("detr", "Model")
    name = "embedder.embedder.normalization.running_var"  # of frozen norms
    theirs = official.backbone.model.state_dict()[name]
    assert torch.equal(ours.encoder.embed_tokens.backbone.model.state_dict()[name], theirs) and (theirs != 1).all()
    official, ours = pair("big_bird", "ForMaskedLM")  # has a pooler that nothing reads
    assert not any("pooler" in name for name in ours.state_dict())
    assert qkv.to_transformers(ours).bert.pooler.weight.shape == official.bert.pooler.weight.shape
    official, ours = pair("m2m_100", "Model")  # its table of positions is no part of a checkpoint
    assert not [name for name in (*ours.state_dict(), *official.state_dict()) if "position" in name]
    ours = pair("bloom", "ForCausalLM")[1]  # has code for eager attention alone
    ours.set_attn_implementation("sdpa")
    assert qkv.to_transformers(ours).config._attn_implementation == "eager"


def test_words_of_deberta_are_scored_by_its_new_head_or_by_that_of_bert() -> None:
    """And weights of v3's own files that no class of transformers reads are left out."""
    official, ours = pair("deberta-v2", "ForMaskedLM", legacy=False)
    back, inputs = qkv.to_transformers(ours), text("right")
    real = inputs["attention_mask"].bool()
    scores = [model(**inputs).logits[real] for model in (official, ours, back)]
    assert back.config.legacy and all((each - scores[0]).abs().max() <= SINGLE for each in scores)
    assert of_another_head("deberta-v2", "mask_predictions.classifier.bias")


def test_sinusoids_of_whisper_are_rows_of_a_table_and_its_keys_have_no_bias() -> None:
    official = variant("whisper", "ForConditionalGeneration", "").build()
    with torch.no_grad():
        official.model.encoder.embed_positions.weight.add_(torch.randn(11, 32))
    ours = qkv.from_transformers(official)
    assert torch.equal(ours.model.encoder.position.table.weight, official.model.encoder.embed_positions.weight)
    assert_identical(qkv.to_transformers(ours), official)
    attention = ours.model.decoder.layers[0].cross_attn
    assert attention.k_proj.bias is None and attention.q_proj.bias is not None
    ours.config.decoder.attention_bias = True
    with raises_sentence("decoder.attention_bias=True"):
        qkv.to_transformers(qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(ours.config))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_of_other_sizes_are_resampled_in_single_precision(dtype: torch.dtype) -> None:
    official = variant("dinov2", "Model", "").build().to(dtype)
    table = qkv.from_transformers(official).position.resample((3, 5), torch.device("cpu"))
    hidden = torch.zeros(1, 1 + 15, 32, dtype=dtype)
    assert torch.equal(table, official.embeddings.interpolate_pos_encoding(hidden, 12, 20)[0])


# Global tokens of Longformer and LED ----------------------------------------------------------------------------------


@torch.no_grad()
def test_a_text_is_classified_by_its_first_token_unless_told_otherwise() -> None:
    official, ours = pair("longformer", "ForSequenceClassification")
    assert ours.config.num_global_tokens == 1
    given = tokens(side="right")
    assert (official(**given).logits - ours(**given).logits).abs().max() <= SINGLE
    marks = torch.zeros_like(given["input_ids"])
    marks[:, [0, 4]] = 1
    alike = [model(**given, global_attention_mask=marks).logits for model in (official, ours)]
    assert (alike[0] - alike[1]).abs().max() <= SINGLE
    assert (alike[1] - ours(**given).logits).abs().max() > 100 * SINGLE


@torch.no_grad()
def test_questions_and_choices_are_marked_by_the_caller() -> None:
    """With the mask that stock Longformer computes from separators, the numbers are its own."""
    ids = tokens(side="none")["input_ids"].clone()
    ids[:, [2, 3, 8]] = END  # as RoBERTa's tokenizer writes pairs
    official, ours = pair("longformer", "ForQuestionAnswering", sep_token_id=END)
    with raises_sentence("global_attention_mask", "num_global_tokens"):
        ours(ids)
    question = (torch.arange(9) < 2).long().expand(3, -1)
    expected, actual = official(ids), ours(ids, global_attention_mask=question)
    assert (expected.start_logits - actual.start_logits).abs().max() <= SINGLE
    official, ours = pair("longformer", "ForMultipleChoice", sep_token_id=END)
    stacked, context = torch.stack((ids, ids), 1), (torch.arange(9) > 3).long().expand(3, 2, -1)
    expected, actual = official(stacked).logits, ours(stacked, global_attention_mask=context).logits
    assert (expected - actual).abs().max() <= SINGLE


@torch.no_grad()
@pytest.mark.parametrize("removed", [True, False])
def test_a_long_text_is_read_in_chunks(removed: bool) -> None:
    official, ours = pair("longformer", "Model", max_position_embeddings=700, attention_window=16)
    assert ours.config._attn_implementation == "sdpa"  # stock Longformer has no choice
    ours.remove_padding = removed
    mask = (torch.arange(601) < torch.tensor([[601], [350]])).long()
    ids = torch.randint(4, 61, (2, 601)).where(mask.bool(), PAD)
    marks = torch.zeros_like(ids)
    marks[0, [5, 300, 600]] = 1
    given = {"input_ids": ids, "attention_mask": mask, "global_attention_mask": marks}
    difference = official(**given).last_hidden_state - ours(**given).last_hidden_state
    assert difference[mask.bool()].abs().max() <= SINGLE


@torch.no_grad()
def test_led_marks_the_source_while_it_generates() -> None:
    official, ours = pair("led", "ForConditionalGeneration")
    given = {name: each for name, each in translation("right").items() if not name.startswith("decoder")}
    marks = (torch.arange(9) == 3).long().expand(3, -1)
    settings = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2, "global_attention_mask": marks}
    assert torch.equal(official.generate(**given, **settings), ours.generate(**given, **settings))


# Proteins -------------------------------------------------------------------------------------------------------------


def proteins() -> dict[str, Tensor]:
    """Residues between a beginning and the end that the stock contact head knows, some masked, padded on the right."""
    inputs = tokens(side="right")
    ids = inputs["input_ids"].scatter(1, inputs["attention_mask"].sum(-1, keepdim=True) - 1, 2)
    return {**inputs, "input_ids": ids.index_fill(1, torch.tensor(0), 0)}


def contact_model(ours: Any) -> qkv.QkvEncoderForContactPrediction:
    """The contact head and the encoder below it, of any other head."""
    model = qkv.QkvEncoderForContactPrediction(ours.config)
    model.model.load_state_dict(ours.model.state_dict())
    return model.eval()


@torch.no_grad()
def contact_distance(**fields: Any) -> float:
    official, ours = pair("esm", "ForMaskedLM", **fields)
    expected = official.predict_contacts(*proteins().values())
    return (contact_model(ours)(**proteins()).logits.sigmoid() - expected).abs().max().item()


@pytest.mark.parametrize("fields", [{}, {"position_embedding_type": "absolute", "emb_layer_norm_before": True}])
def test_contacts_are_those_of_predict_contacts(fields: dict[str, Any]) -> None:
    assert contact_distance(**fields) <= SINGLE
    with double():
        assert contact_distance(**fields) <= DOUBLE


@torch.no_grad()
def test_a_contact_head_goes_to_the_base_model_and_back() -> None:
    ours = contact_model(pair("esm", "ForMaskedLM")[1])
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
    stored = official.esm.rotary_embeddings.inv_freq
    stored.copy_(stored.to(getattr(torch, rounded)))
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


def test_frequencies_follow_from_the_config() -> None:
    config = tiny.encoder(position="rope")
    weights = {"model.position.inv_freq": frequencies(config)}
    observe(config, weights)
    assert weights == {} and "inv_freq_dtype" not in config.rope_parameters
    official = variant("esm", "ForMaskedLM", "").build()
    official.esm.rotary_embeddings.inv_freq.mul_(1.01)
    with raises_sentence("inv_freq", "rope_theta=10000.0"):
        qkv.from_transformers(official)


def change_weights(official: Any, folder: Path, drop: str, **added: Tensor) -> None:
    """Save a model as an earlier release did: without some tensors, with others."""
    official.save_pretrained(folder)
    weights = {name: each for name, each in load_file(folder / "model.safetensors").items() if drop not in name}
    save_file({**weights, **added}, folder / "model.safetensors", metadata={"format": "pt"})


def test_files_of_first_releases_are_read(tmp_path: Path) -> None:
    """ESM with frequencies in each layer and a table of positions that nothing reads; CLIP with the numbers 0, 1, 2, …"""
    official = variant("esm", "ForMaskedLM", "").build()
    name = "esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq"
    old = {name.format(layer): official.esm.rotary_embeddings.inv_freq.clone() for layer in range(2)}
    old["esm.embeddings.position_ids"] = torch.arange(24)[None]
    old["esm.embeddings.position_embeddings.weight"] = torch.zeros(24, 32)
    change_weights(official, tmp_path / "esm", "inv_freq", **old)
    assert_identical(qkv.from_transformers(tmp_path / "esm"), qkv.from_transformers(official))
    official = variant("clip", "Model", "").build()
    old = {f"{half}_model.embeddings.position_ids": torch.arange(10)[None] for half in ("text", "vision")}
    change_weights(official, tmp_path / "clip", "nothing", **old)
    assert_identical(qkv.to_transformers(qkv.from_transformers(tmp_path / "clip")), official)
