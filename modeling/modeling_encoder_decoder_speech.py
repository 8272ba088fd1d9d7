"""Encoder-decoders that write down what they hear: sound -> encoder -> memory; words so far -> decoder -> scores.

Shapes: B batch, L frames, M mel bins, T targets, V vocabulary.
"""

from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .base import can_return_tuple
from .modeling_encoder_decoder import Writer

# transformers' pipeline tells by this table of names alone whether a model writes or labels what it hears; the class
# of a published copy has to be in it as well.
MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES["qkv_encoder_decoder"] = "QkvEncoderDecoderForSpeechSeq2Seq"


def whole(model: Any, features: Tensor | None, *args: Any, **kwargs: Any) -> Any:
    """Write down all of the sound at once; without a mask all of its frames are real."""
    if features is not None and kwargs.get("attention_mask") is None:
        axis = 1 if model.config.encoder.frame_layout == "frames_first" else 2
        size = (features.shape[0], features.shape[axis])
        kwargs["attention_mask"] = torch.ones(size, dtype=torch.long, device=features.device)
    return GenerationMixin.generate(model, features, *args, **kwargs)


def windows(model: Any, features: Tensor | None, *args: Any, **kwargs: Any) -> Any:
    """Write down one window after the other, with tokens that say language, task and time: transformers' own code."""
    return WhisperGenerationMixin.generate(model, features, *args, **kwargs)


TRANSCRIPTIONS = {"whole": whole, "windows": windows}


class QkvEncoderDecoderForSpeechSeq2Seq(Writer, WhisperGenerationMixin):
    """Write down or translate speech: `input_features, decoder_input_ids -> model -> lm_head -> logits (B, T, V)`.

    `generate` is transformers' own, that of Whisper with `transcription="windows"`, which reads `max_source_positions`,
    `max_target_positions`, `decoder_layers` and `median_filter_width` of the config and timestamps, language and task
    of the generation config.
    """

    config: QkvEncoderDecoderConfig
    reads = "spectrogram"
    main_input_name = "input_features"

    def __init__(self, config: QkvEncoderDecoderConfig) -> None:
        super().__init__(config)
        # Where the code of Whisper looks up how many frames make a token.
        encoder: Any = self.model.encoder
        encoder.conv1, encoder.conv2 = SimpleNamespace(stride=(prod(config.encoder.conv_strides),)), ONE_BY_ONE

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """transformers' `generate`, with the options of Whisper where the config transcribes in windows."""
        named = (kwargs.pop("inputs", None), kwargs.pop("input_features", None))
        features = args or [value for value in named if value is not None][:1] or (None,)
        return TRANSCRIPTIONS[self.config.transcription](self, *features, **kwargs)

    def _prepare_decoder_input_ids_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        """Leave a prompt where Whisper has it, before the start token; transformers does so for its own class alone."""
        parent: Any = super()
        options = kwargs.get("model_kwargs") or {}
        # CODEPATH: Whisper, with words of before or a prompt
        if self.config.transcription == "windows" and options.get("decoder_input_ids") is not None:
            return options.pop("decoder_input_ids"), options
        return parent._prepare_decoder_input_ids_for_generation(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_features: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Any = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """`attention_mask` (B, L) marks real frames; `labels` (B, T) are the targets, -100 where none is due."""
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        target = (decoder_input_ids, decoder_attention_mask, decoder_position_ids)
        cached = {"past_key_values": past_key_values, "use_cache": use_cache, "encoder_outputs": encoder_outputs}
        given = {"input_features": input_features, "decoder_inputs_embeds": decoder_inputs_embeds}
        outputs = self.model(None, attention_mask, *target, **cached, **given, **kwargs)
        return self.scored(outputs, labels, num_items_in_batch)


ONE_BY_ONE = SimpleNamespace(stride=(1,))
