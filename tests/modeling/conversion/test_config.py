"""A config converts when there and back again changes nothing: the test itself, and configs as they were published."""

from typing import Any

import pytest
from transformers import AutoConfig

import qkv
import tiny
from qkv.modeling.conversion.config import (
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
from qkv.modeling.conversion.convert import ARCHITECTURES, attempted

# Fields of config.json files on the Hub, abridged, with what old versions of transformers wrote into them.
ANCIENT = {"_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "gradient_checkpointing": False}
OLD_BART = {
    **ANCIENT,
    "normalize_before": False,
    "classif_dropout": 0.1,
    "num_hidden_layers": 6,
    "classifier_dropout": 0.0,
}
MBART = {
    "normalize_before": True,
    "add_final_layer_norm": True,
    "normalize_embedding": True,
    "scale_embedding": True,
}
SUMMARY = {"summary_activation": None, "summary_first_dropout": 0.1, "summary_type": "cls_index", "n_ctx": 1024}
LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
T5 = {
    "decoder_start_token_id": 0,
    "n_positions": 512,
    "output_past": True,
    "task_specific_params": {"summarization": {}},
}
OPT = {"activation_dropout": 0.0, "prefix": "</s>", "layerdrop": 0.0, "_remove_final_layer_norm": False}
MEGATRON = {
    **{"attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "masked_softmax_fusion": True, "n_inner": None},
    **{"offset_alibi": 100, "seq_length": 2048, "skip_bias_add": True, "skip_bias_add_qkv": False, "unk_token_id": 0},
}
NEOX = {"rotary_emb_base": 10000, "rotary_pct": 0.25, "use_parallel_residual": True, "tie_word_embeddings": False}
CLIP_PART = {
    **{"add_cross_attention": False, "bad_words_ids": None, "diversity_penalty": 0.0, "do_sample": False},
    **{"dropout": 0.0, "early_stopping": False, "is_decoder": False, "length_penalty": 1.0, "num_beams": 1},
    **{"pruned_heads": {}, "return_dict": True, "tie_encoder_decoder": False, "tie_word_embeddings": True},
    **{"torchscript": False, "use_bfloat16": False, "typical_p": 1.0, "transformers_version": "4.16.0.dev0"},
}
CLIP_TEXT = {**CLIP_PART, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "projection_dim": 512}
# The revision of each without timm.
DETR = {
    "backbone_config": {
        **{"model_type": "resnet", "out_features": ["stage4"], "depths": [3, 4, 6, 3], "layer_type": "bottleneck"}
    },
    **{"backbone": None, "use_timm_backbone": False, "use_pretrained_backbone": False, "dilation": False},
    **{"classifier_dropout": 0.0, "max_position_embeddings": 1024, "scale_embedding": False, "num_hidden_layers": 6},
    **{"num_queries": 100, "eos_coefficient": 0.1, "id2label": {"0": "N/A", "1": "person"}},
}
QWEN = {"bos_token_id": 151643, "use_sliding_window": False, "rope_theta": 1e6}
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
    "smollm2-135m": (
        "llama",
        "LlamaForCausalLM",
        {
            **{"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536},
            **{"is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000},
            **{"pretraining_tp": 1, "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}},
        },
    ),
    "opt-125m": ("opt", "OPTForCausalLM", {**OPT, "word_embed_proj_dim": 768}),
    "opt-350m": (
        "opt",
        "OPTForCausalLM",
        {
            **OPT,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "do_layer_norm_before": False,
            "word_embed_proj_dim": 512,
        },
    ),
    "opt-iml-1.3b": (
        "opt",
        "OPTForCausalLM",
        {**OPT, "hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "word_embed_proj_dim": 2048},
    ),
    "bloom-560m": (
        "bloom",
        "BloomForCausalLM",
        {**MEGATRON, "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "pretraining_tp": 1, "pad_token_id": 3},
    ),
    "bloom": ("bloom", "BloomForCausalLM", {**MEGATRON, "hidden_size": 14336, "n_head": 112, "pretraining_tp": 4}),
    "pythia-70m": ("gpt_neox", "GPTNeoXForCausalLM", {**NEOX, "hidden_size": 512, "num_attention_heads": 8}),
    "gpt-neox-20b": (
        "gpt_neox",
        "GPTNeoXForCausalLM",
        {**NEOX, "attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "hidden_act": "gelu_fast"},
    ),
    "qwen2.5-0.5b": (
        "qwen2",
        "Qwen2ForCausalLM",
        {**QWEN, "max_window_layers": 24, "sliding_window": 32768, "use_mrope": False, "tie_word_embeddings": True},
    ),
    "qwen3-0.6b": (
        "qwen3",
        "Qwen3ForCausalLM",
        {**QWEN, "attention_bias": False, "head_dim": 128, "rope_scaling": None, "sliding_window": None},
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
    "flan-t5-xl": (
        "t5",
        "T5EncoderModel",
        {
            **T5,
            **{"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": True},
            **{"d_model": 2048, "d_ff": 5120, "num_heads": 32, "num_layers": 24, "num_decoder_layers": 24},
            **{"tie_word_embeddings": False, "classifier_dropout": 0.0, "use_cache": True},
        },
    ),
    "mt5-small": (
        "mt5",
        "MT5ForConditionalGeneration",
        {
            **{"d_ff": 1024, "num_heads": 6, "num_layers": 8, "num_decoder_layers": 8, "initializer_factor": 1.0},
            **{"tie_word_embeddings": False, "tokenizer_class": "T5Tokenizer", "feed_forward_proj": "gated-gelu"},
        },
    ),
    "bart-large-mnli": (
        "bart",
        "BartForSequenceClassification",
        {
            **{**OLD_BART, "num_hidden_layers": 12, "classif_dropout": 0.0, "activation_dropout": 0.0},
            **{"id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"}, "scale_embedding": False},
            **{"_num_labels": 3, "forced_eos_token_id": 2, "static_position_embeddings": False},
        },
    ),
    "mbart-large-en-ro": (
        "mbart",
        "MBartForConditionalGeneration",
        {
            **{**OLD_BART, **MBART, "num_hidden_layers": 12, "decoder_start_token_id": 250020, "output_past": True},
            **{"prefix": " ", "replacing_rate": 0, "static_position_embeddings": False, "vocab_size": 250027},
            **{"task_specific_params": {"translation_en_to_ro": {"decoder_start_token_id": 250020}}},
        },
    ),
    "mbart-large-50": (
        "mbart",
        "MBartForConditionalGeneration",
        {
            **{**OLD_BART, **MBART, "num_hidden_layers": 12, "classif_dropout": 0.0, "attention_dropout": 0.0},
            **{"early_stopping": True, "tokenizer_class": "MBart50Tokenizer", "vocab_size": 250054, "max_length": 200},
        },
    ),
    "pegasus-xsum": (
        "pegasus",
        "PegasusForConditionalGeneration",
        {
            **{**OLD_BART, "normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False},
            **{"activation_function": "relu", "scale_embedding": True, "static_position_embeddings": True},
            **{"encoder_layers": 16, "decoder_layers": 16, "num_hidden_layers": 16, "max_position_embeddings": 512},
            **{"bos_token_id": 0, "extra_pos_embeddings": 0, "force_bos_token_to_be_generated": False},
            **{"length_penalty": 0.6, "num_beams": 8, "vocab_size": 96103, "attention_dropout": 0.1},
        },
    ),
    "m2m100_418M": (
        "m2m_100",
        "M2M100ForConditionalGeneration",
        {
            **{"encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05, "gradient_checkpointing": False},
            **{"early_stopping": True, "max_length": 200, "num_beams": 5, "num_hidden_layers": 12},
        },
    ),
    "nllb-200-distilled-600M": (
        "m2m_100",
        "M2M100ForConditionalGeneration",
        {
            **{"encoder_layerdrop": 0, "decoder_layerdrop": 0, "vocab_size": 256206, "num_hidden_layers": 12},
            **{"tokenizer_class": "NllbTokenizer", "max_length": 200},
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
    # What the first release of transformers with CLIP wrote into every part, and the first checkpoints still say.
    "clip-vit-base-patch32": (
        "clip",
        "CLIPModel",
        {
            **{"text_config": CLIP_TEXT, "vision_config": {**CLIP_PART, "patch_size": 32}},
            "initializer_factor": 1.0,
        },
    ),
    "clip-vit-large-patch14": (
        "clip",
        "CLIPModel",
        {
            "text_config": {**CLIP_TEXT, "hidden_size": 768, "num_attention_heads": 12, "projection_dim": 768},
            "vision_config": {**CLIP_PART, "hidden_size": 1024, "patch_size": 14, "num_attention_heads": 16},
            "projection_dim": 768,
        },
    ),
    "laion-clip": (
        "clip",
        "CLIPModel",
        {
            "text_config": {**CLIP_TEXT, "hidden_act": "gelu"},
            "vision_config": {**CLIP_PART, "hidden_act": "gelu"},
        },
    ),
    **{name: ("detr", f"Detr{name}", DETR) for name in ("Model", "ForObjectDetection")},
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


@pytest.mark.parametrize(
    "make", [tiny.encoder, tiny.image_encoder, tiny.decoder, tiny.encoder_decoder, tiny.dual_encoder]
)
def test_nested_undoes_flat(make: Any) -> None:
    config = make()
    values = {name: value for name, value in flat(config).items() if name.rpartition(".")[2] not in BOOKKEEPING}
    again = type(config)(**nested(values, config.sub_configs))
    assert different(values, flat(again)) == []


def test_layers_that_are_alike_are_one_pattern() -> None:
    alike = flat(tiny.decoder("llama", pattern=["sliding", "sliding"], sliding_window=3))
    assert alike["pattern"] == "sliding"
    mixed = flat(tiny.decoder("llama", pattern=["sliding", "full"], sliding_window=3))
    assert mixed["pattern"] == ["sliding", "full"]


def test_a_field_nobody_knows_is_named() -> None:
    architecture, head, config = found("bert", "BertForMaskedLM", {"whatever": 3, "unset": None})
    assert lost_on_reading(architecture, head, config) == ["whatever=3 is unknown there"]


def test_what_says_nothing_does_not_matter() -> None:
    ours = flat(tiny.encoder_decoder("t5"))
    assert matters("encoder.relative_attention_num_buckets", ours)
    assert not matters("encoder.block_size", ours) and not matters("decoder.position_offset", ours)
    assert matters("decoder.position_offset", flat(tiny.encoder_decoder("bart")))
    assert matters("decoder.position_offset", flat(tiny.encoder_decoder("marian")))  # a wave has a start as well
    assert not matters("decoder.attention_multiplier", ours) and not matters("encoder.pad_token_id", ours)


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
    assert canonical({"a": 1, "partial_rotary_factor": 1.0}) == {"a": 1}
    assert canonical({"partial_rotary_factor": 0.5}) == {"partial_rotary_factor": 0.5}
    assert canonical(None) is None and canonical([]) == []


def test_a_codec_reads_and_writes_with_all_other_fields_in_sight() -> None:
    fields = {"hidden_size": Codec("d_model", lambda value, theirs: value * theirs["num_heads"], lambda value, ours: 8)}
    architecture = Architecture("t5", qkv.QkvDecoderConfig, fields, {"position": "none"}, (), ())
    head = Head(qkv.QkvDecoderModel, "T5Model", words={"norm": "rms"})
    config = read_config(architecture, head, AutoConfig.for_model("t5", d_model=4, num_heads=3))
    assert (config.hidden_size, config.position, config.norm) == (12, "none", "rms")
    assert write_config(architecture, head, config).d_model == 8
