"""A config converts when there and back again changes nothing: the test itself, and configs as they were published."""

from typing import Any

import pytest
from transformers import AutoConfig

import qkv
import tiny
from qkv.modeling.conversion import ARCHITECTURES, attempted
from qkv.modeling.conversion_config import (
    BOOKKEEPING,
    Architecture,
    Codec,
    Head,
    canonical,
    different,
    flat,
    lost_on_reading,
    lost_on_writing,
    matters,
    nested,
    read_config,
    write_config,
)

# Fields of config.json files on the Hub, abridged, with what old versions of transformers wrote into them.
ANCIENT = {"_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "gradient_checkpointing": False}
OLD_BART = {
    **ANCIENT,
    "normalize_before": False,
    "classif_dropout": 0.1,
    "num_hidden_layers": 6,
    "classifier_dropout": 0.0,
}
SUMMARY = {"summary_activation": None, "summary_first_dropout": 0.1, "summary_type": "cls_index", "n_ctx": 1024}
LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
T5 = {
    "decoder_start_token_id": 0,
    "n_positions": 512,
    "output_past": True,
    "task_specific_params": {"summarization": {}},
}
PUBLISHED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base-uncased": (
        "bert",
        "BertForMaskedLM",
        {"gradient_checkpointing": False, "position_embedding_type": "absolute", "use_cache": True},
    ),
    "bert-base-chinese": ("bert", "BertForMaskedLM", {"directionality": "bidi", "pooler_fc_size": 768}),
    "roberta-base": (
        "roberta",
        "RobertaForMaskedLM",
        {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    "xlm-roberta-base": (
        "xlm-roberta",
        "XLMRobertaForMaskedLM",
        {"max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 250002, "output_past": True},
    ),
    "distilbert-base-uncased": (
        "distilbert",
        "DistilBertForMaskedLM",
        {"sinusoidal_pos_embds": False, "tie_weights_": True, "seq_classif_dropout": 0.2, "n_layers": 6},
    ),
    "distilbert-base-uncased-finetuned-sst-2-english": (
        "distilbert",
        "DistilBertForSequenceClassification",
        {"sinusoidal_pos_embds": False, "tie_weights_": True, "finetuning_task": "sst-2", "output_past": True},
    ),
    "electra-small-discriminator": (
        "electra",
        "ElectraForPreTraining",
        {"embedding_size": 128, "hidden_size": 256, "summary_activation": "gelu", "summary_use_proj": True},
    ),
    "electra-base-generator": (
        "electra",
        "ElectraForMaskedLM",
        {"embedding_size": 768, "hidden_size": 256, "summary_last_dropout": 0.1, "summary_type": "first"},
    ),
    "modernbert-base": (
        "modernbert",
        "ModernBertForMaskedLM",
        {
            **{"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0},
            **{"layer_norm_eps": 1e-5, "position_embedding_type": "absolute", "classifier_pooling": "mean"},
            **{"sparse_prediction": False, "repad_logits_with_grad": False, "gradient_checkpointing": False},
        },
    ),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {**SUMMARY, "task_specific_params": {"text-generation": {"max_length": 50}}}),
    "distilgpt2": ("gpt2", "GPT2LMHeadModel", {**SUMMARY, "_num_labels": 1, "id2label": {"0": "LABEL_0"}}),
    "llama-2-7b": ("llama", "LlamaForCausalLM", {"pretraining_tp": 1, "rope_scaling": None, "torch_dtype": "float16"}),
    "llama-3.2-1b": (
        "llama",
        "LlamaForCausalLM",
        {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}, "eos_token_id": [128001, 128008]},
    ),
    "mistral-7b-v0.1": ("mistral", "MistralForCausalLM", {"sliding_window": 4096, "rope_theta": 10000.0}),
    "mistral-7b-v0.3": ("mistral", "MistralForCausalLM", {"sliding_window": None, "rope_theta": 1e6}),
    "t5-small": ("t5", "T5ForConditionalGeneration", T5),
    "flan-t5-small": (
        "t5",
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "num_heads": 6, "tie_word_embeddings": False, "is_gated_act": True},
    ),
    "bart-base": (
        "bart",
        "BartModel",
        {**OLD_BART, "normalize_embedding": True, "no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "num_beams": 4},
    ),
    "opus-mt-en-de": (
        "marian",
        "MarianMTModel",
        {
            **OLD_BART,
            **{"activation_function": "swish", "normalize_embedding": False, "static_position_embeddings": True},
            **{"scale_embedding": True, "bad_words_ids": [[58100]], "extra_pos_embeddings": 58101},
        },
    ),
    "vit-base-patch16-224": ("vit", "ViTForImageClassification", {"image_size": 224, "qkv_bias": True}),
    "dinov2-base": (
        "dinov2",
        "Dinov2Model",
        {"image_size": 518, "out_features": ["stage12"], "out_indices": [12], "apply_layernorm": True},
    ),
    "dinov2-giant-imagenet1k-1-layer": (
        "dinov2",
        "Dinov2ForImageClassification",
        {
            **{"hidden_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 24, "use_swiglu_ffn": True},
            **{"image_size": 518, "mlp_ratio": 4, "reshape_hidden_states": True},
        },
    ),
    "deit-base-distilled": ("deit", "DeiTForImageClassificationWithTeacher", {"encoder_stride": 16}),
}
OFFICIAL = {
    "bert_base": ("bert", "BertForMaskedLM", {}),
    "bert_large": (
        "bert",
        "BertForMaskedLM",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "roberta_base": PUBLISHED["roberta-base"],
    "gpt2": ("gpt2", "GPT2LMHeadModel", {}),
    "gpt2_xl": ("gpt2", "GPT2LMHeadModel", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "t5_small": ("t5", "T5ForConditionalGeneration", T5),
    "vit_base_16": ("vit", "ViTForImageClassification", {"num_labels": 1000}),
}


def found(model_type: str, class_name: str, fields: dict[str, Any]) -> tuple[Architecture, Head, Any]:
    """The row that loses least of a config."""
    config = AutoConfig.for_model(model_type, **fields)
    pairs = [(one, head) for one in ARCHITECTURES if one.model_type == model_type for head in one.heads]
    pairs = [pair for pair in pairs if pair[1].theirs == class_name]
    return *min(pairs, key=lambda pair: attempted(lost_on_reading, *pair, config)), config


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_lose_nothing(name: str) -> None:
    architecture, head, config = found(*PUBLISHED[name])
    assert lost_on_reading(architecture, head, config) == []
    assert lost_on_writing(architecture, head, read_config(architecture, head, config)) == []


@pytest.mark.parametrize("name", OFFICIAL)
def test_presets_are_the_official_configs(name: str) -> None:
    architecture, head, config = found(*OFFICIAL[name])
    preset = getattr(qkv.presets, name)()
    # Classifiers are fine-tuned later, with dropouts of their own.
    wanted = {field: value for field, value in flat(preset).items() if matters(field, flat(preset))}
    for dropout in ("classifier_dropout", "pooling_dropout"):
        wanted.pop(dropout, None)
    assert different(wanted, flat(read_config(architecture, head, config))) == []


@pytest.mark.parametrize("make", [tiny.encoder, tiny.vision, tiny.decoder, tiny.translator])
def test_nested_undoes_flat(make: Any) -> None:
    config = make()
    values = {name: value for name, value in flat(config).items() if name.rpartition(".")[2] not in BOOKKEEPING}
    again = type(config)(**nested(values, config.sub_configs))
    assert different(values, flat(again)) == []


def test_layers_that_are_alike_are_one_pattern() -> None:
    alike = flat(tiny.decoder("llama", attention_patterns=["sliding", "sliding"], sliding_window=3))
    assert alike["pattern"] == "sliding" and alike["attention_patterns"] is None
    mixed = flat(tiny.decoder("llama", attention_patterns=["sliding", "full"], sliding_window=3))
    assert mixed["attention_patterns"] == ["sliding", "full"]


def test_a_field_nobody_knows_is_named() -> None:
    architecture, head, config = found("bert", "BertForMaskedLM", {"whatever": 3, "unset": None})
    assert lost_on_reading(architecture, head, config) == ["whatever=3 is unknown there"]


def test_what_says_nothing_does_not_matter() -> None:
    ours = flat(tiny.translator("t5"))
    assert matters("encoder.relative_attention_num_buckets", ours)
    assert not matters("encoder.block_size", ours) and not matters("decoder.position_offset", ours)
    assert not matters("decoder.attention_multiplier", ours) and not matters("encoder.pad_token_id", ours)
    assert matters("pad_token_id", flat(tiny.encoder())) and not matters("pad_token_id", flat(tiny.vision()))


def test_a_class_is_asked_only_for_what_it_reads() -> None:
    """An unset `head_act` is the layers' activation in one head and tanh in another."""
    roberta = {"norm_first": False, "embedding_norm": True, "type_vocab_size": 2, "position_offset": 2}
    config = tiny.encoder(**roberta, pooling="mean", hidden_act="relu", qa_dropout=0.1, classifier_dropout=0.3)
    pairs = [(one, head) for one in ARCHITECTURES if one.model_type == "roberta" for head in one.heads]
    lost = {head.theirs: lost_on_writing(one, head, config) for one, head in pairs}
    assert lost["RobertaForMaskedLM"] == ["head_act='relu' would become 'gelu'"]
    assert lost["RobertaForTokenClassification"] == []
    assert lost["RobertaForQuestionAnswering"] == ["qa_dropout=0.1 would become 0.0"]
    assert "pooling='mean' would become 'dense'" in lost["RobertaForSequenceClassification"]
    config.update({"pooling": "dense", "pooling_dropout": 0.3, "head_act": "tanh"})
    lost = {head.theirs: lost_on_writing(one, head, config) for one, head in pairs}
    assert lost["RobertaForSequenceClassification"] == []
    assert lost["RobertaForMaskedLM"] == ["head_act='tanh' would become 'gelu'"]


def test_equal_values_have_one_spelling() -> None:
    assert canonical([4, 4]) == canonical((4, 4)) == 4 and canonical((4, 6)) == [4, 6]
    assert canonical("swish") == canonical("silu") and canonical("gelu") != canonical("gelu_new")
    assert canonical({"a": 1}) == {"a": 1} and canonical(None) is None and canonical([]) == []


def test_a_codec_reads_and_writes_with_all_other_fields_in_sight() -> None:
    fields = {"hidden_size": Codec("d_model", lambda value, theirs: value * theirs["num_heads"], lambda value, ours: 8)}
    architecture = Architecture("t5", qkv.QkvDecoderConfig, fields, {"position": "none"}, (), ())
    head = Head(qkv.QkvDecoderModel, "T5Model", words={"norm": "rms"})
    config = read_config(architecture, head, AutoConfig.for_model("t5", d_model=4, num_heads=3))
    assert (config.hidden_size, config.position, config.norm) == (12, "none", "rms")
    assert write_config(architecture, head, config).d_model == 8
