"""Configs and presets of every model, registered with AutoConfig; importable without torch."""

# size: most of it is sentences for wrong values, and papers as presets
from transformers import AutoConfig

from . import presets
from .configuration_decoder import QkvDecoderConfig
from .configuration_detection import QkvDetectionConfig
from .configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import QkvEncoderDecoderConfig
from .configuration_recurrent import QkvRecurrentConfig

CONFIGS = (
    QkvEncoderConfig,
    QkvDecoderConfig,
    QkvEncoderDecoderConfig,
    QkvRecurrentConfig,
    QkvTextEncoderConfig,
    QkvDualEncoderConfig,
    QkvDetectionConfig,
)

for config_class in CONFIGS:
    AutoConfig.register(config_class.model_type, config_class)

__all__ = [
    "QkvDecoderConfig",
    "QkvDetectionConfig",
    "QkvDualEncoderConfig",
    "QkvEncoderConfig",
    "QkvEncoderDecoderConfig",
    "QkvRecurrentConfig",
    "QkvTextEncoderConfig",
    "presets",
]
