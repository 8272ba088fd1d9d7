"""The public vocabulary: configs and presets. Importing this needs no torch."""

from . import presets
from .configuration_decoder import QkvDecoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import QkvEncoderDecoderConfig

__all__ = ["QkvDecoderConfig", "QkvEncoderConfig", "QkvEncoderDecoderConfig", "presets"]
