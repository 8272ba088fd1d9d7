"""The models, and their places in the Auto classes."""

# size: a third of the lines are conversion tables and the sentences that refuse wrong inputs; the core itself is small
import transformers
from transformers.models.auto import modeling_auto

from ..configuration.configuration_decoder import QkvDecoderConfig
from ..configuration.configuration_detection import QkvDetectionConfig
from ..configuration.configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from ..configuration.configuration_encoder import QkvEncoderConfig
from ..configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from ..configuration.configuration_recurrent import QkvRecurrentConfig
from .conversion.convert import from_transformers, to_transformers
from .modeling_decoder import (
    QkvDecoderForCausalLM,
    QkvDecoderForQuestionAnswering,
    QkvDecoderForSequenceClassification,
    QkvDecoderForTokenClassification,
    QkvDecoderModel,
)
from .modeling_detection import QkvDetectionForObjectDetection, QkvDetectionModel
from .modeling_dual_encoder import QkvDualEncoderModel, QkvTextEncoderModel
from .modeling_encoder import (
    QkvEncoderForMultipleChoice,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
)
from .modeling_encoder_decoder import QkvEncoderDecoderForConditionalGeneration, QkvEncoderDecoderModel
from .modeling_encoder_decoder_heads import (
    QkvEncoderDecoderForQuestionAnswering,
    QkvEncoderDecoderForSequenceClassification,
)
from .modeling_encoder_decoder_speech import QkvEncoderDecoderForSpeechSeq2Seq
from .modeling_encoder_image import QkvEncoderForImageClassification, QkvEncoderForMaskedImageModeling
from .modeling_encoder_pretraining import (
    QkvEncoderForMaskedLM,
    QkvEncoderForPreTraining,
    QkvEncoderForReplacedTokenDetection,
)
from .modeling_encoder_speech import QkvEncoderForCTC
from .modeling_recurrent import QkvRecurrentForConditionalGeneration, QkvRecurrentModel

# transformers decides some behaviour by class name alone (label smoothing's shift, what a pipeline may load).
NAME_TABLES = {
    "AutoModelForCausalLM": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "AutoModelForSeq2SeqLM": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}

# Where one Auto class has several of ours, `architectures` of the config decides.
SEVERAL = {"AutoModelForPreTraining": (QkvEncoderForPreTraining, QkvEncoderForReplacedTokenDetection)}

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
    transformers.AutoConfig.register(config_class.model_type, config_class)
    for auto_class, reference in config_class.auto_classes.items():
        if auto_class != "AutoConfig":
            # Its file is that of the published copy, where a family is one file.
            class_name = reference.rpartition(".")[2]
            model_class = SEVERAL.get(auto_class, globals()[class_name])
            getattr(transformers, auto_class).register(config_class, model_class)
            if auto_class in NAME_TABLES:
                NAME_TABLES[auto_class][config_class.model_type] = class_name

__all__ = [
    "QkvDecoderForCausalLM",
    "QkvDecoderForQuestionAnswering",
    "QkvDecoderForSequenceClassification",
    "QkvDecoderForTokenClassification",
    "QkvDecoderModel",
    "QkvDetectionForObjectDetection",
    "QkvDetectionModel",
    "QkvDualEncoderModel",
    "QkvEncoderDecoderForConditionalGeneration",
    "QkvEncoderDecoderForQuestionAnswering",
    "QkvEncoderDecoderForSequenceClassification",
    "QkvEncoderDecoderForSpeechSeq2Seq",
    "QkvEncoderDecoderModel",
    "QkvEncoderForCTC",
    "QkvEncoderForImageClassification",
    "QkvEncoderForMaskedImageModeling",
    "QkvEncoderForMaskedLM",
    "QkvEncoderForMultipleChoice",
    "QkvEncoderForPreTraining",
    "QkvEncoderForQuestionAnswering",
    "QkvEncoderForReplacedTokenDetection",
    "QkvEncoderForSequenceClassification",
    "QkvEncoderForTokenClassification",
    "QkvEncoderModel",
    "QkvRecurrentForConditionalGeneration",
    "QkvRecurrentModel",
    "QkvTextEncoderModel",
    "from_transformers",
    "to_transformers",
]
