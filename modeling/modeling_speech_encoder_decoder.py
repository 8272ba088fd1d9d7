"""Encoder-decoders from speech to text: sound -> encoder -> memory; tokens so far, memory -> decoder -> logits.

Shapes: B batch, L frames, M mel bins, S sources, T targets, D hidden_size, V vocabulary.
"""

from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

from ..configuration.configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig
from .base import QkvPreTrainedModel, can_return_tuple
from .generation import QkvGenerationMixin, generation_options
from .heads.language_modeling import skips_logits
from .masks.masking import GivenMask
from .modeling_audio_encoder import QkvAudioEncoderModel
from .modeling_encoder_decoder import EncoderOutputs, QkvCrossDecoderModel, Seq2SeqLMBase, StackEncoderDecoder

# transformers' pipeline tells by this table of names alone whether a model transcribes or labels frames; the class of
# a published copy has to be in it as well.
MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES["qkv_speech_encoder_decoder"] = "QkvSpeechEncoderDecoderForSpeechSeq2Seq"


class QkvSpeechEncoderDecoderModel(StackEncoderDecoder):
    """An audio encoder and a decoder of text joined by cross-attention: Whisper, Speech2Text by configuration.

    `input_features -> encoder -> memory (B, S, D); decoder_input_ids -> decoder(memory) -> last_hidden_state (B, T, D)`
    """

    config: QkvSpeechEncoderDecoderConfig
    main_input_name = "input_features"

    def __init__(self, config: QkvSpeechEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.encoder = QkvAudioEncoderModel(config.encoder)
        self.decoder = QkvCrossDecoderModel(config.decoder)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_features: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: GivenMask = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: EncoderOutputs = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: object,
    ) -> Seq2SeqModelOutput:
        """Run both stacks; `encoder_outputs` of an earlier call spare the encoder, `attention_mask` is (B, L)."""
        kwargs = {**self.recorded(), **kwargs}
        source = {"input_features": input_features, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
        encoder_outputs = self.encode(encoder_outputs, **source, **kwargs)
        mask = self.encoder.padding_mask(attention_mask, encoder_outputs[0])
        target = (decoder_input_ids, decoder_attention_mask, decoder_position_ids, decoder_inputs_embeds)
        return self.decode(encoder_outputs, mask, target, past_key_values, use_cache=use_cache, **kwargs)


def generate_short_form(
    model: "QkvSpeechEncoderDecoderForSpeechSeq2Seq", features: Tensor | None, *args: object, **kwargs: object
) -> object:
    """Transcribe all of the sound at once; without a mask no frame is padding."""
    if features is not None and kwargs.get("attention_mask") is None:
        axis = 1 if model.config.encoder.frame_layout == "frames_first" else 2
        size = (features.shape[0], features.shape[axis])
        kwargs["attention_mask"] = torch.ones(size, dtype=torch.long, device=features.device)
    generate: Callable[..., object] = GenerationMixin.generate
    return generate(model, features, *args, **kwargs)


def generate_long_form(
    model: "QkvSpeechEncoderDecoderForSpeechSeq2Seq", features: Tensor | None, *args: object, **kwargs: object
) -> object:
    """Transcribe one window after the other, with tokens of language, task and time: transformers' code for Whisper."""
    generate: Callable[..., object] = WhisperGenerationMixin.generate
    return generate(model, features, *args, **kwargs)


TRANSCRIPTIONS = {"short_form": generate_short_form, "long_form": generate_long_form}


class QkvSpeechEncoderDecoderForSpeechSeq2Seq(Seq2SeqLMBase, QkvGenerationMixin, WhisperGenerationMixin):
    """Transcribe or translate speech: `input_features, decoder_input_ids -> model -> lm_head -> logits (B, T, V)`.

    `generate` is transformers' own, with `transcription="long_form"` that of Whisper, which reads
    `max_source_positions`, `max_target_positions`, `decoder_layers` and `median_filter_width` of the config, and
    timestamps, language and task of the generation config.
    """

    config: QkvSpeechEncoderDecoderConfig
    model_class: ClassVar[type[QkvPreTrainedModel]] = QkvSpeechEncoderDecoderModel
    main_input_name = "input_features"

    def __init__(self, config: QkvSpeechEncoderDecoderConfig) -> None:
        super().__init__(config)
        # Where the code of Whisper looks up how many frames make a token.
        first = SimpleNamespace(stride=(prod(config.encoder.conv_strides),))
        vars(self.model.encoder).update(conv1=first, conv2=ONE_BY_ONE)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as transformers does, with Whisper's options where the config transcribes in long form."""
        named = (kwargs.pop("inputs", None), kwargs.pop("input_features", None))
        features = args or [value for value in named if value is not None][:1] or (None,)
        with self.laid_out(kwargs.get("assistant_model")):
            options = generation_options(self, args, kwargs)
            return TRANSCRIPTIONS[self.config.transcription](self, *features, **options)

    def _prepare_decoder_input_ids_for_generation(self, *args: object, **kwargs: Any) -> Any:
        """Leave a prompt where Whisper has it, before the start token; transformers does so for its own class alone."""
        parent: Any = super()
        options = kwargs.get("model_kwargs") or {}
        if self.config.transcription == "long_form" and options.get("decoder_input_ids") is not None:
            return options.pop("decoder_input_ids"), options
        return parent._prepare_decoder_input_ids_for_generation(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_features: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: GivenMask = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: EncoderOutputs = None,
        past_key_values: Cache | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        skip_logits: bool | None = None,
        **kwargs: object,
    ) -> Seq2SeqLMOutput:
        """Predict the text; `attention_mask` (B, L) is 0 at padded frames, `labels` (B, T) -100 where none is due."""
        skip = skips_logits(self, labels, kwargs, skip_logits=skip_logits)
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            decoder_attention_mask = self.target_mask(labels, decoder_attention_mask, past_key_values, skip_logits=skip)
        target = {"decoder_input_ids": decoder_input_ids, "decoder_attention_mask": decoder_attention_mask}
        target["decoder_position_ids"] = decoder_position_ids
        use_cache = False if skip else use_cache
        cached = {"past_key_values": past_key_values, "use_cache": use_cache, "encoder_outputs": encoder_outputs}
        given = {"input_features": input_features, "decoder_inputs_embeds": decoder_inputs_embeds}
        outputs = self.model(attention_mask=attention_mask, **target, **cached, **given, **kwargs)
        return self.scored(outputs, labels, num_items_in_batch, skip_logits=skip)


ONE_BY_ONE = SimpleNamespace(stride=(1,))
