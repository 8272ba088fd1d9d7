"""The models."""

from . import fast_paths as fast_paths
from .conversion.convert import from_transformers, to_transformers
from .heads.routing import balance_experts
from .modeling_audio_encoder import QkvAudioEncoderForCTC, QkvAudioEncoderModel
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
    QkvEncoderDecoderEncoderModel,
    QkvEncoderDecoderForQuestionAnswering,
    QkvEncoderDecoderForSequenceClassification,
)
from .modeling_encoder_pretraining import (
    QkvEncoderForContactPrediction,
    QkvEncoderForMaskedLM,
    QkvEncoderForPreTraining,
    QkvEncoderForReplacedTokenDetection,
)
from .modeling_folding import QkvFoldingModel
from .modeling_image_encoder import (
    QkvImageEncoderForImageClassification,
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
)
from .modeling_pair import (
    QkvPairForContactPrediction,
    QkvPairForDistancePrediction,
    QkvPairForMaskedLM,
    QkvPairForTokenClassification,
    QkvPairModel,
)
from .modeling_recurrent import QkvRecurrentForConditionalGeneration, QkvRecurrentModel
from .modeling_speech_encoder_decoder import QkvSpeechEncoderDecoderForSpeechSeq2Seq, QkvSpeechEncoderDecoderModel
from .registration import register

__all__ = [
    "QkvAudioEncoderForCTC",
    "QkvAudioEncoderModel",
    "QkvDecoderForCausalLM",
    "QkvDecoderForQuestionAnswering",
    "QkvDecoderForSequenceClassification",
    "QkvDecoderForTokenClassification",
    "QkvDecoderModel",
    "QkvDetectionForObjectDetection",
    "QkvDetectionModel",
    "QkvDualEncoderModel",
    "QkvEncoderDecoderEncoderModel",
    "QkvEncoderDecoderForConditionalGeneration",
    "QkvEncoderDecoderForQuestionAnswering",
    "QkvEncoderDecoderForSequenceClassification",
    "QkvEncoderDecoderModel",
    "QkvEncoderForContactPrediction",
    "QkvEncoderForMaskedLM",
    "QkvEncoderForMultipleChoice",
    "QkvEncoderForPreTraining",
    "QkvEncoderForQuestionAnswering",
    "QkvEncoderForReplacedTokenDetection",
    "QkvEncoderForSequenceClassification",
    "QkvEncoderForTokenClassification",
    "QkvEncoderModel",
    "QkvFoldingModel",
    "QkvImageEncoderForImageClassification",
    "QkvImageEncoderForMaskedImageModeling",
    "QkvImageEncoderModel",
    "QkvPairForContactPrediction",
    "QkvPairForDistancePrediction",
    "QkvPairForMaskedLM",
    "QkvPairForTokenClassification",
    "QkvPairModel",
    "QkvRecurrentForConditionalGeneration",
    "QkvRecurrentModel",
    "QkvSpeechEncoderDecoderForSpeechSeq2Seq",
    "QkvSpeechEncoderDecoderModel",
    "QkvTextEncoderModel",
    "balance_experts",
    "from_transformers",
    "to_transformers",
]

register({name: value for name, value in globals().items() if name in __all__ and isinstance(value, type)})
