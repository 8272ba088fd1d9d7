"""Encoder-decoders from speech to text: Whisper, Speech2Text."""

from typing import ClassVar

from .axes import TranscriptionName
from .configuration_audio_encoder import QkvAudioEncoderConfig
from .configuration_base import auto_classes_of
from .configuration_decoder import QkvDecoderConfig
from .configuration_encoder_decoder import Seq2SeqConfig
from .fields import Part, at_least


class QkvSpeechEncoderDecoderConfig(Seq2SeqConfig):
    """Configure an encoder-decoder from speech to text: Whisper, Speech2Text.

    Fields of `QkvAudioEncoderConfig` and `QkvDecoderConfig` may be given flat for both.

    Args:
        transcription: How `generate` transcribes: `short_form`, all of the sound at once; `long_form`, one window of
            the encoder's length after the other, with Whisper's tokens of task, language and time.
        median_filter_width: Width in tokens of the filter that smooths the alignment for the times of words.
    """

    model_type = "qkv_speech_encoder_decoder"
    sub_configs_defaults = {"encoder": QkvAudioEncoderConfig, "decoder": QkvDecoderConfig}
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "speech_encoder_decoder", "QkvSpeechEncoderDecoder", "SpeechSeq2Seq"
    )
    # The number of layers by Whisper's name, too.
    attribute_map: ClassVar[dict[str, str]] = {**Seq2SeqConfig.attribute_map, "decoder_layers": "num_hidden_layers"}
    # Sound has no table of embeddings to share.
    share_embeddings: ClassVar[bool] = False

    encoder: Part[QkvAudioEncoderConfig] = None  # type: ignore[assignment]
    transcription: TranscriptionName = "short_form"
    median_filter_width: int = at_least(1, 7)

    @property
    def max_source_positions(self) -> int:
        """Longest input of the encoder in tokens, after its convolutions; transformers' code for Whisper reads it."""
        return self.encoder.max_position_embeddings

    @property
    def max_target_positions(self) -> int:
        """Longest text in tokens; read there as well."""
        return self.decoder.max_position_embeddings
