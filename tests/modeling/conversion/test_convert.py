"""What a conversion keeps, and what it refuses in one sentence. That the numbers agree stands in test_parity.py."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers import PreTrainedModel

import families
import qkv
import tables
import tiny
from errors import raises_sentence
from families import FAMILIES, ROWS, variant
from families.base import UNREAD_PARTS, Row
from qkv.modeling.conversion.convert import CONVERSIONS, attempted
from sampling import sampled

TABLES = tables.beside(__file__)
LANGUAGE_MODELS = [row for row in ROWS if row.generates and not row.name]
# One head of each architecture, the one with the most of its own.
ONES = ("ForMaskedLM", "ForImageClassification")
HEADED = [*LANGUAGE_MODELS, *(row for row in ROWS if "tied" in row.name or (row.head in ONES and not row.name))]


@pytest.mark.parametrize("row", sampled(HEADED, 5), ids=str)
def test_labels_special_tokens_ties_dtype_mode_and_generation_settings_are_kept(row: Row) -> None:
    official = row.build().to(torch.float16).train(row.generates)
    official.config.problem_type = "multi_label_classification"
    if row.generates:
        official.generation_config.update(num_beams=3, length_penalty=0.7, max_new_tokens=5, forced_eos_token_id=7)
    ours = qkv.from_transformers(official)
    back = qkv.to_transformers(ours, row.family.model_type)
    for model in (official, ours, back):
        head, table = model.get_output_embeddings(), model.get_input_embeddings()
        tied = head is not None and head.weight is getattr(table, "weight", None)
        assert tied == (head is not None and official.config.tie_word_embeddings)
        assert model.training == row.generates
        for name in ("id2label", "label2id", "problem_type", "pad_token_id", "bos_token_id", "eos_token_id"):
            if hasattr(official.config, name):
                assert getattr(model.config, name) == getattr(official.config, name), name
        if row.generates:
            assert model.generation_config.to_dict() == official.generation_config.to_dict()
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float16}
    weights, unread = back.state_dict(), UNREAD_PARTS.get(type(official).__name__, " ")
    read = {name: each for name, each in official.state_dict().items() if not name.startswith(unread)}
    assert all(torch.equal(weights[name], each) for name, each in read.items())
    assert not row.generates or ours.generation_config is not official.generation_config
    assert getattr(back.config, "forced_eos_token_id", 7) in (7, None)


@pytest.mark.parametrize(("architecture", "head", "fields", "rate"), TABLES["dropouts"])
def test_a_head_drops_out_as_often_as_theirs(architecture: str, head: str, fields: dict[str, Any], rate: float) -> None:
    official = build(architecture, head, **fields)
    ours = qkv.from_transformers(official)
    assert ours.dropout.p == official.dropout.p == qkv.to_transformers(ours).dropout.p == rate


# Those with a map before the classifier's own, and a dropout before each.
@pytest.mark.parametrize(("architecture", "rate"), [("roberta", 0.4), ("electra", 0.4), ("t5", 0.25), ("bart", 0.25)])
def test_a_classifier_with_two_maps_has_a_dropout_before_each(architecture: str, rate: float) -> None:
    official = build(architecture, "ForSequenceClassification", classifier_dropout=rate)
    ours = qkv.from_transformers(official)
    assert ours.dropout.p == rate and (ours.config.is_encoder_decoder or ours.model.pooler.dropout.p == rate)
    assert dropouts(qkv.to_transformers(ours)) == dropouts(official)


def dropouts(model: PreTrainedModel) -> dict[str, float]:
    return {name: module.p for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)}


def test_no_two_models_share_memory(tmp_path: Path) -> None:
    """Each parameter of a model read from files has memory of its own size: saving and sharding see no shared tensors."""
    official = LANGUAGE_MODELS[0].build()
    ours = qkv.from_transformers(official)
    models = (official, ours, qkv.to_transformers(ours))
    one, other, back = ({tensor.untyped_storage().data_ptr() for tensor in m.state_dict().values()} for m in models)
    assert not one & other and not other & back
    official.save_pretrained(tmp_path)
    for name, parameter in qkv.from_transformers(str(tmp_path)).named_parameters():
        assert parameter.is_contiguous() and parameter.untyped_storage().nbytes() == parameter.nbytes, name


def test_a_class_derived_from_an_official_one_converts() -> None:
    class Mine(transformers.BertForMaskedLM):
        pass

    official = families.ROWS[1]
    assert type(qkv.from_transformers(Mine(official.config()))) is qkv.QkvEncoderForMaskedLM


def build(architecture: str, head: str, **fields: Any) -> PreTrainedModel:
    return variant(architecture, head, "", **fields).build()


@pytest.mark.parametrize(("architecture", "head", "fields", "sentence"), TABLES["refused"])
def test_what_has_no_counterpart_here_is_refused(
    architecture: str, head: str, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        qkv.from_transformers(build(architecture, head, **fields))


@torch.no_grad()
@pytest.mark.parametrize("name", ["decoder", "translator t5"])
def test_label_smoothing_is_no_obstacle(name: str) -> None:
    """It is the loss's alone, and Trainer's `label_smoothing_factor` there: every output stays what it was."""
    model_class, config = made(name, {"label_smoothing": 0.1, "mlp_bias": "t5" not in name})
    model = tiny.jitter(model_class(config)).eval()
    # The first row has no padding, at which models answer as they like.
    inputs = {key: value[:1] for key, value in (tiny.pairs() if "t5" in name else tiny.text()).items()}
    assert_close(qkv.to_transformers(model).eval()(**inputs).logits, model(**inputs).logits, rtol=1e-4, atol=1e-4)


def detector(**fields: Any) -> Any:
    return small(qkv.presets.detr_r50, backbone_config=tiny.KINDS["detector"]["detr"]["backbone_config"], **fields)


def pairs(**fields: Any) -> Any:
    return small(qkv.presets.clip_vit_b32, projection_dim=8, vocab_size=50000, **fields)


def small(preset: Any, **fields: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return preset(**sizes, **fields)


# A class, and what makes its configs.
MODELS: dict[str, tuple[Any, Any]] = {
    "decoder": (qkv.QkvDecoderForCausalLM, tiny.decoder),
    "translator": (qkv.QkvEncoderDecoderForConditionalGeneration, tiny.encoder_decoder),
    "text": (qkv.QkvEncoderForSequenceClassification, tiny.encoder),
    "masked": (qkv.QkvEncoderForMaskedLM, tiny.encoder),
    "pretraining": (qkv.QkvEncoderForPreTraining, tiny.encoder),
    "answers": (qkv.QkvEncoderForQuestionAnswering, tiny.encoder),
    "image": (qkv.QkvImageEncoderForImageClassification, tiny.image_encoder),
    "pictures": (qkv.QkvImageEncoderForMaskedImageModeling, tiny.image_encoder),
    "captions": (qkv.QkvDualEncoderModel, pairs),
    "objects": (qkv.QkvDetectionForObjectDetection, detector),
    "patches": (qkv.QkvDetectionForObjectDetection, partial(tiny.detector, "patches")),
    "speech": (qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq, tiny.speech_encoder_decoder),
}


def made(words: str, fields: dict[str, Any]) -> tuple[Any, Any]:
    """A class and one of its configs, by the name of the class and the kind of tiny config."""
    name, *kind = words.split()
    model_class, make = MODELS[name]
    return model_class, make(*kind, **fields)


@pytest.mark.costly(14)
@pytest.mark.parametrize(("words", "fields", "official"), TABLES["known_to_stock"])
def test_fields_tell_which_official_class_a_model_is(words: str, fields: dict[str, Any], official: str) -> None:
    model_class, config = made(words, fields)
    stock = qkv.to_transformers(model_class(config))
    assert type(stock).__name__ == official
    assert type(qkv.from_transformers(stock)) is model_class
    window = getattr(stock.config, "sliding_window", None) if "Mistral" in official or "Llama" in official else None
    assert window == (config.sliding_window if "Mistral" in official else None)


@pytest.mark.parametrize(("words", "fields", "sentence"), TABLES["unknown_to_stock"])
@pytest.mark.costly(25)
def test_what_stock_transformers_has_not_is_refused(words: str, fields: dict[str, Any], sentence: str) -> None:
    model_class, config = made(words, fields)
    with pytest.raises(ValueError, match=rf"stock transformers has no such model: in its nearest, .*{sentence}"):
        qkv.to_transformers(model_class(config))


def test_a_codec_that_finds_no_word_refuses_its_own_architecture_alone() -> None:
    """Any of the tables may meet a config that it has no word for."""
    words: dict[str, bool] = {}
    assert attempted(lambda config: [words[config]], "new") == (True, ["'new'"])
    assert attempted(lambda config: [[][0]], "new")[0]


@pytest.mark.parametrize("model_type", [None, "roberta", "xlm-roberta"])
def test_one_of_several_names_of_a_model_is_asked_for(model_type: str | None) -> None:
    ours = qkv.from_transformers(build("xlm-roberta", "ForMaskedLM"))
    assert qkv.to_transformers(ours, model_type).config.model_type == (model_type or "roberta")
    with raises_sentence("model_type='robert'", "QkvEncoderForMaskedLM", "roberta"):
        qkv.to_transformers(ours, "robert")
    with raises_sentence("DistilBertForMaskedLM"):
        qkv.to_transformers(ours, "distilbert")


def test_other_things_than_models_are_refused(tmp_path: Path) -> None:
    config = variant("bert", "Model", "").config()
    for source, *mentions in (
        (3, "int"),
        (tmp_path / "nowhere", "nowhere"),
        (qkv.QkvDecoderModel(tiny.decoder()), "model_type 'qkv_decoder'", "starcoder2"),
        (transformers.BertForNextSentencePrediction(config), "BertForNextSentencePrediction", "BertModel"),
    ):
        with raises_sentence(*mentions):
            qkv.from_transformers(source)
    with raises_sentence("QkvAudioEncoderForCTC"):
        qkv.to_transformers(qkv.QkvAudioEncoderForCTC(tiny.audio_encoder()))
    with raises_sentence("BertModel"):
        qkv.to_transformers(build("bert", "Model"))
    with torch.device("meta"), raises_sentence("meta"):
        qkv.from_transformers(transformers.BertModel(config))


def test_every_architecture_has_a_row() -> None:
    assert {each.model_type for each in CONVERSIONS} == set(FAMILIES)
    # The whole of ESMFold has tests of its own.
    assert {row.class_name for row in ROWS} == {each.theirs for each in CONVERSIONS} - {"EsmForProteinFolding"}
