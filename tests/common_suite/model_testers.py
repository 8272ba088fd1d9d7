"""What transformers' common tests ask of a model: a tiny config, its heads, inputs that all of them take, sizes."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers import BertConfig, GPT2Config, PreTrainedConfig, T5Config

import qkv
import tiny

Inputs = dict[str, Any]
BATCH = 13
TEXT = {"batch_size": BATCH, "seq_length": tiny.LENGTH, "num_choices": 3}
# Training over devices is compared with training of one process, and dropout differs.
PLAIN = dict.fromkeys(tiny.DROPOUT, 0.0)
IMAGE = {"batch_size": BATCH, "seq_length": 13, "image_size": 16, "patch_size": 4, "num_masks": 5, "mask_length": 12}


@dataclass(frozen=True)
class Family:
    """Heads that take the same inputs, with the labels of those that need others than the tests would make."""

    config: Callable[[], PreTrainedConfig]
    heads: Sequence[str]
    inputs: Callable[[], Inputs]
    sizes: Mapping[str, Any]
    labels: Mapping[str, Callable[[], Inputs]] = field(default_factory=dict)
    traits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[Any, ...]:
        return tuple(getattr(qkv, name, None) or getattr(transformers, name) for name in self.heads)

    @property
    def is_language_model(self) -> bool:
        """True where an Auto class of decoders or encoder-decoders over text loads it."""
        return any(head.endswith(("CausalLM", "LMHeadModel", "ForConditionalGeneration")) for head in self.heads)


def model_tester(family: Family) -> Any:
    """Return the object that the tests call `model_tester`."""
    sizes = {"is_training": True, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, **family.sizes}
    causal = [head for head in family.classes if head.__name__.endswith(("CausalLM", "LMHeadModel"))]
    return SimpleNamespace(
        **sizes,
        **({"causal_lm_class": causal[0]} if causal else {}),
        get_config=family.config,
        prepare_config_and_inputs_for_common=lambda: (family.config(), copy.deepcopy(family.inputs())),
    )


def text() -> Inputs:
    return tiny.text(batch=BATCH)


def sentences() -> Inputs:
    return tiny.ended(text())


def translations() -> Inputs:
    target = tiny.text(batch=BATCH, seed=3)
    return {**text(), **{f"decoder_{name}": value for name, value in target.items()}}


def captions() -> Inputs:
    return {**sentences(), **tiny.images(batch=BATCH)}


def speech() -> Inputs:
    """Sound without padding, as the tests take the mask of the source for one of the target."""
    inputs = tiny.audio_with_targets()
    return {name: value for name, value in inputs.items() if "mask" not in name}


def alignments() -> Inputs:
    """Chains and the sequences beside them, of words that the tests' smaller vocabulary has, too."""
    inputs = tiny.alignment()
    return {**inputs, "msa_ids": inputs["msa_ids"].clamp(max=tiny.VOCABULARY - 16)}


GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
TINY = {"vocab_size": tiny.VOCABULARY, **tiny.IDS}
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
BERT_HEADS = ("Model", "ForMaskedLM", *CLASSIFIERS, "ForMultipleChoice")
DECODER = [f"QkvDecoder{head}" for head in ("Model", "ForCausalLM", *CLASSIFIERS)]
TRANSLATORS = [f"QkvEncoderDecoder{head}" for head in ("Model", "ForConditionalGeneration")]
FAMILIES = {
    "BERT": Family(lambda: BertConfig(**TINY, **tiny.SIZES), [f"Bert{head}" for head in BERT_HEADS], text, TEXT),
    "GPT2": Family(
        lambda: GPT2Config(**TINY, **GPT2, n_positions=64),
        ["GPT2Model", "GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2ForTokenClassification"],
        text,
        TEXT,
    ),
    "T5": Family(
        lambda: T5Config(**TINY, **T5, decoder_start_token_id=2),
        ["T5Model", "T5ForConditionalGeneration"],
        translations,
        TEXT,
    ),
    "Encoder": Family(tiny.encoder, [f"QkvEncoder{head}" for head in BERT_HEADS], text, TEXT),
    "Decoder": Family(lambda: tiny.decoder(max_position_embeddings=64, **PLAIN), DECODER, text, TEXT),
    "DecoderLlama": Family(lambda: tiny.decoder("llama"), DECODER, text, TEXT),
    "DecoderMistral": Family(lambda: tiny.decoder("mistral", num_key_value_heads=2), DECODER, text, TEXT),
    "DecoderExperts": Family(
        lambda: tiny.decoder("llama", feed_forward="moe", num_experts=4, moe_intermediate_size=32, mlp_bias=False),
        DECODER,
        text,
        TEXT,
    ),
    "EncoderDecoder": Family(
        lambda: tiny.encoder_decoder(max_position_embeddings=64, **PLAIN), TRANSLATORS, translations, TEXT
    ),
    "EncoderDecoderT5": Family(lambda: tiny.encoder_decoder("t5"), TRANSLATORS, translations, TEXT),
    "EncoderDecoderEncoder": Family(tiny.encoder_alone, ["QkvEncoderDecoderEncoderModel"], text, TEXT),
    "Recurrent": Family(
        lambda: tiny.recurrent(embedding_dropout=0.0, hidden_dropout=0.0),
        ["QkvRecurrentModel", "QkvRecurrentForConditionalGeneration"],
        translations,
        {**TEXT, "num_hidden_layers": 1},
        traits={"has_attentions": False},
    ),
    "TextEncoder": Family(tiny.text_encoder, ["QkvTextEncoderModel"], sentences, TEXT),
    "ImageEncoder": Family(
        tiny.image_encoder,
        ["QkvImageEncoderModel", "QkvImageEncoderForImageClassification"],
        lambda: tiny.images(batch=BATCH),
        IMAGE,
        traits={"test_resize_embeddings": False},
    ),
    "ImageEncoderMasked": Family(
        lambda: tiny.image_encoder(image_size=16),
        ["QkvImageEncoderForMaskedImageModeling", "QkvImageEncoderForImageClassification"],
        lambda: tiny.images(batch=BATCH, size=(16, 16)),
        {**IMAGE, "seq_length": 17, "mask_length": 16},
        traits={"test_resize_embeddings": False},
    ),
    "DualEncoder": Family(
        tiny.dual_encoder,
        ["QkvDualEncoderModel"],
        captions,
        {**TEXT, "image_size": 16, "patch_size": 4},
        labels={"QkvDualEncoderModel": lambda: {"return_loss": True}},
        traits={"test_resize_embeddings": False, "additional_model_inputs": ["pixel_values"]},
    ),
    "Detection": Family(
        tiny.detector,
        ["QkvDetectionModel", "QkvDetectionForObjectDetection"],
        tiny.padded_images,
        {"batch_size": tiny.BATCH, "encoder_seq_length": tiny.SOURCE, "decoder_seq_length": tiny.QUERIES},
        labels={"QkvDetectionForObjectDetection": lambda: {"labels": tiny.objects()["labels"]}},
        traits={"test_resize_embeddings": False},
    ),
    "Pair": Family(tiny.pair, ["QkvPairModel", "QkvPairForMaskedLM", "QkvPairForTokenClassification"], text, TEXT),
    "PairAligned": Family(
        lambda: tiny.pair(num_recycles=1),
        ["QkvPairModel", "QkvPairForContactPrediction", "QkvPairForDistancePrediction"],
        alignments,
        {**TEXT, "batch_size": tiny.BATCH},
        labels={
            "QkvPairForContactPrediction": lambda: {"labels": tiny.contacts()["labels"]},
            "QkvPairForDistancePrediction": lambda: {"labels": tiny.distances()["labels"]},
        },
    ),
    "Folding": Family(
        tiny.folding,
        ["QkvFoldingModel"],
        lambda: {name: value for name, value in tiny.structures().items() if name != "labels"},
        {**TEXT, "batch_size": tiny.BATCH, "num_hidden_layers": 2},
        labels={"QkvFoldingModel": lambda: {"labels": tiny.structures()["labels"]}},
        traits={"has_attentions": False, "test_resize_embeddings": False},
    ),
    "AudioEncoder": Family(
        tiny.audio_encoder,
        ["QkvAudioEncoderModel", "QkvAudioEncoderForCTC"],
        lambda: tiny.audio(tiny.LENGTH),
        {"batch_size": tiny.BATCH, "seq_length": tiny.LENGTH},
        labels={"QkvAudioEncoderForCTC": lambda: {"labels": tiny.audio_with_labels()["labels"]}},
        traits={"test_resize_embeddings": False},
    ),
    "SpeechEncoderDecoder": Family(
        tiny.speech_encoder_decoder,
        ["QkvSpeechEncoderDecoderModel", "QkvSpeechEncoderDecoderForSpeechSeq2Seq"],
        speech,
        {"batch_size": tiny.BATCH, "encoder_seq_length": tiny.SOURCE, "decoder_seq_length": tiny.LENGTH},
        labels={"QkvSpeechEncoderDecoderForSpeechSeq2Seq": lambda: {"labels": torch.full((tiny.BATCH, 9), 5)}},
    ),
}
