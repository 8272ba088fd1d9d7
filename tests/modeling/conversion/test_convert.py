"""What a conversion keeps, and what it refuses in one sentence. That the numbers agree stands in test_parity.py."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers import PreTrainedModel

import families
import qkv
import tiny
from families import FAMILIES, ROWS, variant
from families.base import Row
from qkv.modeling.conversion.convert import ARCHITECTURES
from sampling import sampled

LANGUAGE_MODELS = [row for row in ROWS if row.generates and not row.name]
# One head of each architecture, the one with the most of its own.
ONES = ("ForMaskedLM", "ForImageClassification")
HEADED = [*LANGUAGE_MODELS, *(row for row in ROWS if "tied" in row.name or (row.head in ONES and not row.name))]
each_head = pytest.mark.parametrize("row", sampled(HEADED, 2), ids=str)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("row", sampled((row for row in HEADED if not row.name), 3), ids=str)
def test_dtype_is_kept(row: Row, dtype: torch.dtype) -> None:
    official = row.build().to(dtype)
    ours = qkv.from_transformers(official)
    assert {parameter.dtype for parameter in ours.parameters()} == {dtype}
    back = qkv.to_transformers(ours)
    for name, tensor in official.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name  # T5 keeps some matrices in fp32 beside fp16


@each_head
def test_labels_and_special_tokens_are_kept(row: Row) -> None:
    official = row.build()
    official.config.problem_type = "multi_label_classification"
    ours = qkv.from_transformers(official)
    for config in (ours.config, qkv.to_transformers(ours).config):
        for name in ("id2label", "label2id", "problem_type", "pad_token_id", "bos_token_id", "eos_token_id"):
            if hasattr(official.config, name):
                assert getattr(config, name) == getattr(official.config, name), name


@pytest.mark.parametrize("row", LANGUAGE_MODELS, ids=str)
def test_generation_settings_are_kept(row: Row) -> None:
    official = row.build()
    official.generation_config.update(num_beams=3, length_penalty=0.7, max_new_tokens=5, forced_eos_token_id=7)
    ours = qkv.from_transformers(official)
    back = qkv.to_transformers(ours)
    assert ours.generation_config.to_dict() == official.generation_config.to_dict() == back.generation_config.to_dict()
    assert ours.generation_config is not official.generation_config
    assert getattr(back.config, "forced_eos_token_id", 7) == 7


@pytest.mark.parametrize("training", [True, False])
def test_mode_is_kept(training: bool) -> None:
    ours = qkv.from_transformers(ROWS[0].build().train(training))
    assert ours.training == training and qkv.to_transformers(ours).training == training


@each_head
def test_ties_are_kept(row: Row) -> None:
    official = row.build()
    ours = qkv.from_transformers(official)
    for model in (official, ours, qkv.to_transformers(ours)):
        head, table = model.get_output_embeddings(), model.get_input_embeddings()
        tied = head is not None and head.weight is getattr(table, "weight", None)
        assert tied == (head is not None and official.config.tie_word_embeddings)


# (official class, its fields, the rate in front of its head): of the config, of the layers, or of the class itself
DROPOUTS = [
    ("bert", "ForSequenceClassification", {}, 0.2),
    ("bert", "ForSequenceClassification", {"classifier_dropout": 0.0}, 0.0),
    ("roberta", "ForMultipleChoice", {"classifier_dropout": 0.4}, 0.2),
    ("distilbert", "ForSequenceClassification", {}, 0.4),
    ("distilbert", "ForMultipleChoice", {}, 0.4),
    ("distilbert", "ForTokenClassification", {}, 0.2),
    ("distilbert", "ForQuestionAnswering", {}, 0.15),
    ("gpt2", "ForTokenClassification", {}, 0.1),
    ("gpt_neox", "ForTokenClassification", {"classifier_dropout": 0.4}, 0.4),
    ("bloom", "ForTokenClassification", {}, 0.2),
    ("bloom", "ForTokenClassification", {"classifier_dropout": 0.4}, 0.4),
]


@pytest.mark.parametrize(("architecture", "head", "fields", "rate"), DROPOUTS)
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


def test_copies_share_no_memory() -> None:
    official = LANGUAGE_MODELS[0].build()
    ours = qkv.from_transformers(official)
    back = qkv.to_transformers(ours)
    places = [
        {tensor.untyped_storage().data_ptr() for tensor in m.state_dict().values()} for m in (official, ours, back)
    ]
    assert not places[0] & places[1] and not places[1] & places[2]


def test_a_model_read_from_files_is_taken_over_whole(tmp_path: Path) -> None:
    """Each parameter has memory of its own size, so that saving and sharding see no shared tensors."""
    LANGUAGE_MODELS[0].build().save_pretrained(tmp_path)
    for name, parameter in qkv.from_transformers(str(tmp_path)).named_parameters():
        assert parameter.is_contiguous() and parameter.untyped_storage().nbytes() == parameter.nbytes, name


def test_queries_absorb_another_factor_on_the_scores() -> None:
    """T5 never scales its scores and Llama always does; ours may do either under any name."""
    ours = tiny.jitter(qkv.QkvDecoderForCausalLM(tiny.decoder("llama", attention_multiplier=0.3))).eval()
    inputs = tiny.text()
    difference = ours(**inputs).logits - qkv.to_transformers(ours)(**inputs).logits
    assert difference[inputs["attention_mask"].bool()].abs().max() <= 1e-5
    translator = tiny.encoder_decoder(
        "t5", mlp_bias=False, attention_multiplier=None, decoder={"attention_multiplier": 0.5}
    )
    ours = tiny.jitter(qkv.QkvEncoderDecoderForConditionalGeneration(translator)).eval()
    stock = qkv.to_transformers(ours)
    assert isinstance(stock, transformers.T5ForConditionalGeneration)
    assert (ours(**tiny.translations()).logits - stock(**tiny.translations()).logits).abs().max() <= 1e-5


def test_a_class_derived_from_an_official_one_converts() -> None:
    class Mine(transformers.BertForMaskedLM):
        pass

    official = families.ROWS[1]
    assert official.class_name == "BertForMaskedLM"
    assert type(qkv.from_transformers(Mine(official.config()))) is qkv.QkvEncoderForMaskedLM


@pytest.mark.parametrize("model_type", sorted({architecture.model_type for architecture in ARCHITECTURES}))
def test_every_class_that_exists_on_both_sides_converts(model_type: str) -> None:
    """Whatever an Auto class finds for an official config and for one of the families that it becomes."""
    official_config = type(transformers.AutoConfig.for_model(model_type))
    kin = [architecture for architecture in ARCHITECTURES if architecture.model_type == model_type]
    for auto_class in {name for architecture in kin for name in architecture.family.auto_classes}:
        table = getattr(getattr(transformers, auto_class), "_model_mapping", {})
        found = table[official_config] if official_config in table else ()
        for official in found if isinstance(found, tuple) else (found,):
            ours = {head.ours.__name__ for one in kin for head in one.heads if head.theirs == official.__name__}
            assert ours, f"{auto_class} finds {official.__name__}, which no table has"
            references = [one.family.auto_classes.get(auto_class, "") for one in kin]
            # Pre-training is a masked language model for RoBERTa and a causal one for others.
            assert auto_class == "AutoModelForPreTraining" or any(name.endswith(tuple(ours)) for name in references)


def build(architecture: str, head: str, **fields: Any) -> PreTrainedModel:
    return variant(architecture, head, "", **fields).build()


ROPE = {"rope_theta": 1000.0, "factor": 2.0}
LONG = {"short_factor": [1.0] * 3, "long_factor": [1.0] * 3, "original_max_position_embeddings": 8}
REFUSED = [
    ("bert", "ForMaskedLM", {"is_decoder": True}, "is_decoder=True would become False"),
    ("bert", "ForMaskedLM", {"add_cross_attention": True, "is_decoder": True}, "add_cross_attention=True"),
    ("bert", "ForMaskedLM", {"hidden_act": "mish"}, "hidden_act='mish' is not one of"),
    ("bert", "ForMaskedLM", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
    ("bert", "ForMaskedLM", {"a_field_of_mine": 3}, "a_field_of_mine=3 is unknown there"),
    ("bert", "ForQuestionAnswering", {"num_labels": 3}, r"qa_outputs.bias of shape \(3,\)"),
    ("xlm-roberta", "ForMaskedLM", {"is_decoder": True}, "is_decoder=True would become False"),
    ("distilbert", "ForMaskedLM", {"activation": "mish"}, "hidden_act='mish' is not one of"),
    ("distilbert", "ForMaskedLM", {"tie_weights_": False}, "tie_weights_=False would become True"),
    ("electra", "ForMaskedLM", {"is_decoder": True}, "is_decoder=True would become False"),
    ("electra", "ForMultipleChoice", {"summary_type": "mean"}, "summary_type='mean' would become 'first'"),
    ("electra", "ForMultipleChoice", {"summary_activation": "linear"}, "head_act='linear' is not one of"),
    ("electra", "ForMultipleChoice", {"summary_use_proj": False}, "summary_use_proj=False would become True"),
    ("modernbert", "ForMaskedLM", {"sparse_prediction": True}, "sparse_prediction=True would become False"),
    ("modernbert", "ForMaskedLM", {"local_attention": 5}, "local_attention=5 would become 4"),
    ("gpt2", "LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
    ("gpt2", "LMHeadModel", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn=True"),
    ("gpt2", "LMHeadModel", {"add_cross_attention": True}, "add_cross_attention=True"),
    ("llama", "ForCausalLM", {"pretraining_tp": 2}, "pretraining_tp=2 would become 1"),
    ("llama", "ForCausalLM", {"rope_parameters": {"rope_type": "longrope", **ROPE, **LONG}}, "rope_type='longrope'"),
    (
        "mistral",
        "ForCausalLM",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e3, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor",
    ),
    (
        "opt",
        "ForCausalLM",
        {"layer_norm_elementwise_affine": False},
        "layer_norm_elementwise_affine=False would become",
    ),
    ("opt", "ForCausalLM", {"layerdrop": 0.1}, "layerdrop=0.1 would become 0.0"),
    (
        "bloom",
        "ForCausalLM",
        {"apply_residual_connection_post_layernorm": True},
        "post_layernorm=True would become Fal",
    ),
    ("bloom", "ForCausalLM", {"slow_but_exact": True, "pretraining_tp": 2}, "slow_but_exact=True would become False"),
    ("gpt_neox", "ForCausalLM", {"hidden_act": "mish"}, "hidden_act='mish' is not one of"),
    ("qwen2", "ForCausalLM", {"use_mrope": True}, "use_mrope=True would become False"),
    (
        "qwen3",
        "ForCausalLM",
        {"layer_types": ["full_attention", "chunked_attention"]},
        "pattern='chunked_attention' is not one of full, sliding, block_sparse",
    ),
    ("t5", "ForConditionalGeneration", {"is_decoder": True}, "is_decoder=True"),
    ("t5", "ForConditionalGeneration", {"feed_forward_proj": "gated-mish"}, "hidden_act='mish' is not one of"),
    ("t5", "EncoderModel", {"is_decoder": True}, "is_decoder=True"),
    ("t5", "ForQuestionAnswering", {"num_labels": 3}, r"qa_outputs.bias of shape \(3,\)"),
    ("mt5", "ForConditionalGeneration", {"feed_forward_proj": "gated-mish"}, "hidden_act='mish' is not one of"),
    ("bart", "ForConditionalGeneration", {"normalize_before": True}, "normalize_before=True"),
    ("bart", "ForConditionalGeneration", {"is_decoder": True}, "is_decoder=True"),
    ("mbart", "ForConditionalGeneration", {"normalize_before": False}, "normalize_before=False"),
    ("pegasus", "ForConditionalGeneration", {"static_position_embeddings": False}, "static_position_embeddings=False"),
    ("m2m_100", "ForConditionalGeneration", {"activation_function": "mish"}, "hidden_act='mish' is not one of"),
    ("marian", "MTModel", {"normalize_before": True}, "normalize_before=True"),
    ("vit", "Model", {"pooler_act": "mish"}, "head_act='mish' is not one of"),
    ("vit", "Model", {"pooler_output_size": 20}, "pooler_output_size=20 would become 32"),
    ("dinov2", "Model", {"layerscale_value": 0.0}, "layer_scale.*must be positive"),
    ("dinov2", "Model", {"use_swiglu_ffn": True, "hidden_act": "relu"}, "hidden_act='relu' would become 'gelu'"),
    ("deit", "ForMaskedImageModeling", {"encoder_stride": 2}, "encoder_stride=2 would become 4|patch_size=4"),
    ("detr", "Model", {"auxiliary_loss": True}, "auxiliary_loss=True has it normalise between the layers"),
    ("detr", "Model", {"position_embedding_type": "learned"}, "position='learned' is not one of sinusoidal_2d"),
]


@pytest.mark.parametrize(("architecture", "head", "fields", "sentence"), REFUSED)
def test_what_has_no_counterpart_here_is_refused(
    architecture: str, head: str, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        qkv.from_transformers(build(architecture, head, **fields))


@pytest.mark.parametrize("name", ["decoder", "translator"])
def test_label_smoothing_is_no_obstacle(name: str) -> None:
    """It is the loss's alone, and Trainer's `label_smoothing_factor` there: every output stays what it was."""
    make = {"decoder": (qkv.QkvDecoderForCausalLM, tiny.decoder("gpt2", label_smoothing=0.1), tiny.text)}
    make["translator"] = (
        qkv.QkvEncoderDecoderForConditionalGeneration,
        tiny.encoder_decoder("t5", label_smoothing=0.1, mlp_bias=False),
        tiny.pairs,
    )
    model_class, config, inputs = make[name]
    model = tiny.jitter(model_class(config)).eval()
    stock = qkv.to_transformers(model).eval()
    with torch.no_grad():
        # The first row has no padding, at which models answer as they like.
        real = {key: value[:1] for key, value in inputs().items()}
        assert_close(stock(**real).logits, model(**real).logits, rtol=1e-4, atol=1e-4)


def detector(**fields: Any) -> Any:
    return small(qkv.presets.detr_r50, backbone_config=tiny.DETECTORS["detr"]["backbone_config"], **fields)


def pairs(**fields: Any) -> Any:
    return small(qkv.presets.clip_vit_b32, projection_dim=8, vocab_size=50000, **fields)


def small(preset: Any, **fields: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return preset(**sizes, **fields)


def unmasked() -> Any:
    encoder = {**tiny.SPEECH_ENCODER_DECODERS["speech"]["encoder"], "frame_padding": "unmasked"}
    return tiny.speech_encoder_decoder("speech", position_offset=2, encoder=encoder)


objects, captions = qkv.QkvDetectionForObjectDetection, qkv.QkvDualEncoderModel
speech = qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq
text, image = qkv.QkvEncoderForSequenceClassification, qkv.QkvImageEncoderForImageClassification
decoder, translator = qkv.QkvDecoderForCausalLM, qkv.QkvEncoderDecoderForConditionalGeneration
masked, pictures = qkv.QkvEncoderForMaskedLM, qkv.QkvImageEncoderForMaskedImageModeling
BERT = {"type_vocab_size": 2, "norm_first": False, "embedding_norm": True}
MODERN = {
    **{"position": "rope", "feed_forward": "glu", "norm_bias": False, "norm_first": True, "type_vocab_size": 0},
    **{"embedding_norm": "instead", "head_transform": True, "head_bias": False, "residual_dropout": 0.0},
    **{"attention_bias": False, "mlp_bias": False, "pattern": ["full", "sliding"], "sliding_window": 3},
    "rope_parameters": {"full": {"rope_theta": 1000.0}, "sliding": {"rope_theta": 10.0}},
}
PLAIN = {"embedding_dropout": 0.0, "residual_dropout": 0.0}
BARE = {"attention_bias": False, "mlp_bias": False}
WINDOW = {"pattern": "sliding", "sliding_window": 3}
# What a config of ours is in stock transformers, told by its fields alone.
KNOWN_TO_STOCK = [
    (masked, tiny.encoder(**BERT), "BertForMaskedLM"),
    *((masked, tiny.encoder(**BERT, position_offset=2, head_act=act), "RobertaForMaskedLM") for act in (None, "gelu")),
    (
        qkv.QkvEncoderForQuestionAnswering,
        tiny.encoder(**{**BERT, "type_vocab_size": 0}, norm_eps=1e-12, qa_dropout=0.1, num_labels=2),
        "DistilBertForQuestionAnswering",
    ),
    *(
        (text, tiny.encoder(**MODERN, pooling=word), "ModernBertForSequenceClassification")
        for word in ("first", "mean")
    ),
    (decoder, tiny.decoder(**PLAIN, hidden_act="relu"), "GPT2LMHeadModel"),
    (decoder, tiny.decoder(**PLAIN, hidden_act="relu", position_offset=2), "OPTForCausalLM"),
    (
        decoder,
        tiny.decoder("bloom", **PLAIN, hidden_act="gelu_bloom", intermediate_size=128, lm_head_bias=False),
        "BloomForCausalLM",
    ),
    (decoder, tiny.decoder(**PLAIN, position="rope"), "GPTNeoXForCausalLM"),
    (decoder, tiny.decoder("llama", **BARE), "LlamaForCausalLM"),
    (decoder, tiny.decoder("llama", attention_bias=True, mlp_bias=True), "LlamaForCausalLM"),
    (decoder, tiny.decoder("llama", **BARE, **WINDOW), "MistralForCausalLM"),
    (decoder, tiny.decoder("llama", **BARE, **{**WINDOW, "pattern": ["sliding"] * 2}), "MistralForCausalLM"),
    (
        decoder,
        tiny.decoder("llama", mlp_bias=False, attention_bias=["q_proj", "k_proj", "v_proj"]),
        "Qwen2ForCausalLM",
    ),
    (decoder, tiny.decoder("llama", **BARE, query_key_norm=True), "Qwen3ForCausalLM"),
    (decoder, tiny.decoder("llama", mlp_bias=False, attention_bias=True, query_key_norm=True), "Qwen3ForCausalLM"),
    (
        decoder,
        tiny.decoder("llama", mlp_bias=False, query_key_norm=True, **{**WINDOW, "pattern": ["full", "sliding"]}),
        "Qwen3ForCausalLM",
    ),
    (image, tiny.image_encoder("deit", image_size=12, pooling="first"), "DeiTForImageClassification"),
    (image, tiny.image_encoder("deit", image_size=12), "DeiTForImageClassificationWithTeacher"),
    (pictures, tiny.image_encoder(drop_path_rate=0.0), "ViTForMaskedImageModeling"),
    (captions, pairs(), "CLIPModel"),
    (objects, detector(), "DetrForObjectDetection"),
]


@pytest.mark.parametrize(("model_class", "config", "official"), KNOWN_TO_STOCK)
def test_fields_tell_which_official_class_a_model_is(model_class: Any, config: Any, official: str) -> None:
    stock = qkv.to_transformers(model_class(config))
    assert type(stock).__name__ == official
    assert type(qkv.from_transformers(stock)) is model_class
    window = getattr(stock.config, "sliding_window", None) if "Mistral" in official or "Llama" in official else None
    assert window == (config.sliding_window if "Mistral" in official else None)


UNKNOWN_TO_STOCK = [
    (decoder, tiny.decoder(position="alibi"), "GPT2LMHeadModel, position='alibi' would become 'learned'"),
    (decoder, tiny.decoder(position="none"), "position='none' would become 'learned'"),
    (decoder, tiny.decoder(norm_first=False), "norm_first=False would become True"),
    (decoder, tiny.decoder(num_key_value_heads=2), "num_key_value_heads=2 would become 4"),
    (decoder, tiny.decoder(head_dim=6), "head_dim=6 would become 8"),
    (decoder, tiny.decoder(lm_head_bias=True), "lm_head_bias=True would become False"),
    (decoder, tiny.decoder("llama", embedding_norm=True), "LlamaForCausalLM, embedding_norm=True"),
    (decoder, tiny.decoder("llama", feed_forward="mlp"), "feed_forward='mlp' would become 'glu'"),
    (decoder, tiny.decoder("llama", pattern="block_sparse"), "pattern='block_sparse' would become 'full'"),
    (
        decoder,
        tiny.decoder("llama", pattern=["full", "sliding"], sliding_window=3),
        "pattern=",
    ),
    (
        decoder,
        tiny.decoder(position_offset=2, embedding_dropout=0.0, query_key_norm=True),
        "OPTForCausalLM, query_key_norm=",
    ),
    (decoder, tiny.decoder(position="rope", norm_bias=False), "GPTNeoXForCausalLM, norm_bias=False would become True"),
    (
        decoder,
        tiny.decoder("llama", query_key_norm=True, mlp_bias=False, parallel_residual=True),
        "Qwen3ForCausalLM, parallel_residual=True would become False",
    ),
    (text, tiny.encoder(position="t5"), "BertForSequenceClassification, position='t5' would become 'learned'"),
    (text, tiny.encoder(pooling="mean"), "pooling='mean' would become 'dense'"),
    (text, tiny.encoder(type_vocab_size=0), "type_vocab_size=0 would become 1"),
    (text, tiny.encoder(residual_dropout=0.3), "embedding_dropout=0.1 would become 0.3"),
    (text, tiny.encoder(position_offset=3), "pad_token_id=1 would become 2"),
    (image, tiny.image_encoder("vit"), "ViTForImageClassification, drop_path_rate=0.1 would become 0.0"),
    (image, tiny.image_encoder("vit", drop_path_rate=0.0, pooling="mean"), "pooling='mean' would become 'first'"),
    (translator, tiny.encoder_decoder(), "MarianMTModel, encoder.attention|encoder.position='sinusoidal'"),
    (translator, tiny.encoder_decoder("t5", share_embeddings=False), "share_embeddings=False would become True"),
    (translator, tiny.encoder_decoder("t5", encoder={"head_dim": 4}), "encoder.head_dim=4 would become 8"),
    (translator, tiny.encoder_decoder("t5", feed_forward="glu"), "hidden_act='gelu' would become 'gelu_new'"),
    (translator, tiny.encoder_decoder("bart", share_embeddings=False), "tie_word_embeddings=True would become False"),
    (
        translator,
        tiny.encoder_decoder("bart", start_with_last_token=True),
        "start_with_last_token=True would become False",
    ),
    (translator, tiny.encoder_decoder("t5", encoder={"layerdrop": 0.1}), "layerdrop=0.1 would become 0.0"),
    (translator, tiny.encoder_decoder("t5", mlp_bias=False, final_dropout=0.1), "dropout=0"),
    (translator, tiny.encoder_decoder("transformer", share_embeddings=True), "'sinusoidal_concat'"),
    (text, tiny.encoder(**MODERN, pooling="dense"), "pooling='dense' would become 'first'"),
    (text, tiny.encoder(**{**MODERN, "embedding_norm": True}), "embedding_norm=True would become 'instead'"),
    (text, tiny.encoder(**{**MODERN, "head_transform": False}), "head_transform=False would become True"),
    (text, tiny.encoder(**{**MODERN, "pattern": ["full", "block_sparse"], "rope_parameters": {}}), "pattern="),
    (text, tiny.encoder(**{**MODERN, "residual_dropout": 0.1}), "residual_dropout=0.1 would become 0.0"),
    (
        decoder,
        tiny.decoder("llama", rope_parameters={"rope_theta": 1000.0, "partial_rotary_factor": 0.5}),
        "partial_rotary_factor",
    ),
    (image, tiny.image_encoder(drop_path_rate=0.0, attention_bias=False), r"False would become \['o_proj'\]"),
    (
        image,
        tiny.image_encoder("dinov2", drop_path_rate=0.0, mask_token=True, image_size=12, intermediate_size=33),
        "Dinov2ForImageClassification, intermediate_size=33 would become",
    ),
    (captions, pairs(text_config={"pooling": "mean"}), "CLIPModel, .*pooling='mean' would become 'end'"),
    (captions, pairs(text_config={"eos_token_id": 2}), "text_config.pooling='end' would become 'highest'"),
    (captions, pairs(vision_config={"patch_bias": True}), "vision_config.patch_bias=True would become False"),
    (captions, pairs(norm="rms"), "text_config.norm='rms' would become 'layer'"),
    (captions, pairs(residual_dropout=0.1), "text_config.residual_dropout=0.1 would become 0.0"),
    (objects, detector(norm_first=True), "DetrForObjectDetection, .*encoder.norm_first=True would become False"),
    (objects, detector(norm_eps=1e-3), "encoder.norm_eps=0.001 would become 1e-05"),
    (objects, detector(encoder={"position": "none"}), "encoder.position='none' would become 'sinusoidal_2d'"),
    (
        objects,
        detector(encoder={"position": "sinusoidal_2d_and_input"}),
        "and_input' would become 'sinusoidal_2d'",
    ),
    (objects, detector(decoder={"final_norm": False}), "decoder.final_norm=False would become True"),
    (objects, detector(embedding_dropout=0.1), "encoder.embedding_dropout=0.1 would become 0.0"),
    (objects, tiny.detector("patches"), ""),
    (speech, tiny.speech_encoder_decoder("speech", position_offset=2), "frame_padding='zeroed' would become 'masked'"),
    (speech, unmasked(), "frame_padding='unmasked'"),
]


@pytest.mark.parametrize(("model_class", "config", "sentence"), UNKNOWN_TO_STOCK)
def test_what_stock_transformers_has_not_is_refused(model_class: Any, config: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"stock transformers has no such model: in its nearest, .*{sentence}"):
        qkv.to_transformers(model_class(config))


def test_other_things_than_models_are_refused(tmp_path: Path) -> None:
    for source, sentence in (
        (3, "takes a model, a folder or a Hub id, got a int"),
        (tmp_path / "nowhere", "nowhere does not exist"),
        (qkv.QkvDecoderModel(tiny.decoder()), "model_type 'qkv_decoder' cannot be converted; qkv converts bart, bert"),
    ):
        with pytest.raises(ValueError, match=sentence):
            qkv.from_transformers(source)
    with pytest.raises(ValueError, match="QkvAudioEncoderForCTC has no counterpart in stock transformers"):
        qkv.to_transformers(qkv.QkvAudioEncoderForCTC(tiny.audio_encoder()))
    with pytest.raises(ValueError, match="takes a qkv model, got a BertModel"):
        qkv.to_transformers(build("bert", "Model"))
    config = variant("bert", "Model", "").config()
    with pytest.raises(ValueError, match="BertForNextSentencePrediction cannot be converted; of bert qkv converts"):
        qkv.from_transformers(transformers.BertForNextSentencePrediction(config))
    with torch.device("meta"), pytest.raises(ValueError, match="is on the meta device"):
        qkv.from_transformers(transformers.BertModel(config))


def test_every_architecture_has_a_row() -> None:
    assert {architecture.model_type for architecture in ARCHITECTURES} == set(FAMILIES)
    rows = {row.class_name for row in ROWS}
    assert rows == {head.theirs for architecture in ARCHITECTURES for head in architecture.heads}
