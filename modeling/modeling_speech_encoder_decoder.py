"""Encoder-decoders from speech to text: sound -> encoder -> memory; tokens so far, memory -> decoder -> logits.

Shapes: B batch, L frames, M mel bins, S sources, T targets, D hidden_size, V vocabulary.
"""

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
from .base import QkvPreTrainedModel, can_return_tuple, inputs_of
from .generation import QkvGenerationMixin, generation_options
from .heads.loss import Count
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


# All of the sound at once, where without a mask no frame is padding; or one window after the other, with tokens of
# language, task and time: transformers' code for Whisper.
TRANSCRIPTIONS: dict[str, Any] = {"short_form": GenerationMixin, "long_form": WhisperGenerationMixin}


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
        first, second = (SimpleNamespace(stride=(size,)) for size in (prod(config.encoder.conv_strides), 1))
        vars(self.model.encoder).update(conv1=first, conv2=second)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as transformers does, with Whisper's options where the config transcribes in long form."""
        named = (kwargs.pop("inputs", None), kwargs.pop("input_features", None))
        features = args or [value for value in named if value is not None][:1] or (None,)
        with self.laid_out(kwargs.get("assistant_model")):
            options = generation_options(self, args, kwargs)
            way = TRANSCRIPTIONS[self.config.transcription]
            if way is GenerationMixin and features[0] is not None and options.get("attention_mask") is None:
                bins = 2 if self.config.encoder.frame_layout == "frames_first" else 1
                options["attention_mask"] = torch.ones_like(features[0].select(bins, 0), dtype=torch.long)
            return way.generate(self, *features, **options)

    def _prepare_decoder_input_ids_for_generation(self, *args: object, **kwargs: Any) -> Any:
        """Leave a prompt where Whisper has it, before the start token; transformers does so for its own class alone."""
        parent: Any = super()
        options = kwargs.get("model_kwargs") or {}
        if self.config.transcription == "long_form" and options.get("decoder_input_ids") is not None:
            return options.pop("decoder_input_ids"), options
        return parent._prepare_decoder_input_ids_for_generation(*args, **kwargs)

    @inputs_of(QkvSpeechEncoderDecoderModel)
    @can_return_tuple
    def forward(
        self,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        skip_logits: bool | None = None,
        **inputs: object,
    ) -> Seq2SeqLMOutput:
        """Predict `labels` (B, T), -100 where none is due; `attention_mask` (B, L) is 0 at padded frames."""
        return self.predict(labels, num_items_in_batch, skip_logits, inputs)
