"""Configs and presets of every model, registered with AutoConfig."""

from transformers import AutoConfig

from . import presets
from .configuration_audio_encoder import QkvAudioEncoderConfig
from .configuration_base import model_configs
from .configuration_decoder import QkvDecoderConfig
from .configuration_detection import QkvDetectionConfig
from .configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import QkvEncoderDecoderConfig
from .configuration_folding import QkvFoldingConfig
from .configuration_image_encoder import QkvImageEncoderConfig
from .configuration_pair import QkvPairConfig
from .configuration_recurrent import QkvRecurrentConfig
from .configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig

# All that a model can be loaded by; others are parts.
CONFIGS = tuple(config_class for config_class in model_configs() if config_class.auto_classes)

for config_class in CONFIGS:
    AutoConfig.register(config_class.model_type, config_class)

__all__ = [
    "QkvAudioEncoderConfig",
    "QkvDecoderConfig",
    "QkvDetectionConfig",
    "QkvDualEncoderConfig",
    "QkvEncoderConfig",
    "QkvEncoderDecoderConfig",
    "QkvFoldingConfig",
    "QkvImageEncoderConfig",
    "QkvPairConfig",
    "QkvRecurrentConfig",
    "QkvSpeechEncoderDecoderConfig",
    "QkvTextEncoderConfig",
    "presets",
]
