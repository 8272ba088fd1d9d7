"""Encoder-decoders: the 2017 Transformer, T5, BART, Marian and their multilingual descendants, Whisper, Speech2Text."""

from copy import deepcopy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from .axes import TranscriptionName
from .configuration_base import HUGGING_FACE_EXTRAS, Derived, QkvConfig, at_least, checked, positive, rate
from .configuration_decoder import QkvDecoderConfig
from .configuration_encoder import QkvEncoderConfig

SHARED_BY_TRANSFORMERS = frozenset(
    "transformers_version architectures output_hidden_states return_dict dtype chunk_size_feed_forward "
    "is_encoder_decoder id2label label2id problem_type".split()
)


if TYPE_CHECKING:
    EncoderPart = Any
    DecoderPart = Any
else:
    # What may be given; what is read afterwards is always a config.
    EncoderPart = QkvEncoderConfig | dict | None
    DecoderPart = QkvDecoderConfig | dict | None


# size: names under which transformers looks for its parts
@checked
class QkvEncoderDecoderConfig(QkvConfig):
    """Two stacks: fields given flat are shared by both, `encoder=` and `decoder=` hold what differs.

    Saved, `encoder` and `decoder` are full configs. `share_embeddings` ties the encoder's token embedding to the
    decoder's; `tie_word_embeddings` ties the output head to it. Decoder inputs are made by a shift to the right, with
    `decoder_start_token_id` first or, with `start_with_last_token`, each text's own last token: mBART's language.
    `classifier_dropout` acts before both linear maps of the sequence classifier. `transcription` is how sound is
    written down: the `whole` of it at once, or in `windows` of what the encoder reads, with the task, language and time
    tokens of Whisper; `median_filter_width` then smooths the alignment that times of words are read from.
    """

    model_type = "qkv_encoder_decoder"
    keys_to_ignore_at_inference = ["past_key_values"]
    sub_configs_defaults: ClassVar[dict[str, Any]] = {"encoder": QkvEncoderConfig, "decoder": QkvDecoderConfig}
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_encoder_decoder.QkvEncoderDecoderConfig",
        "AutoModel": "modeling_encoder_decoder.QkvEncoderDecoderModel",
        "AutoModelForSeq2SeqLM": "modeling_encoder_decoder.QkvEncoderDecoderForConditionalGeneration",
        "AutoModelForSpeechSeq2Seq": "modeling_encoder_decoder.QkvEncoderDecoderForSpeechSeq2Seq",
        "AutoModelForSequenceClassification": "modeling_encoder_decoder.QkvEncoderDecoderForSequenceClassification",
        "AutoModelForQuestionAnswering": "modeling_encoder_decoder.QkvEncoderDecoderForQuestionAnswering",
    }
    encoder: EncoderPart = None
    decoder: DecoderPart = None
    share_embeddings: bool = True
    tie_word_embeddings: bool = True
    label_smoothing: float | int = rate()
    classifier_dropout: float | int = rate()
    initializer_range: float | int = positive(0.02)
    use_cache: bool = True
    is_encoder_decoder: bool = True
    decoder_start_token_id: Derived = 0
    start_with_last_token: bool = False
    transcription: TranscriptionName = "whole"
    median_filter_width: int = at_least(1, 7)
    pad_token_id: Derived = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        ids = {name: getattr(self, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        shared = {"vocab_size": 32128, "initializer_range": self.initializer_range, **ids, **kwargs}
        self.encoder = part(QkvEncoderConfig, self.encoder, shared)
        self.decoder = part(QkvDecoderConfig, self.decoder, {**shared, "cross_attention": True})
        for name in kwargs.keys() - self.known_fields() - HUGGING_FACE_EXTRAS:
            QkvDecoderConfig.refuse_fixed(name, kwargs[name])
        own = {field.name for field in fields(self)}
        given = self.known_fields() - own
        super().__post_init__(**{name: value for name, value in kwargs.items() if name not in given})

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """The plans of both sides."""
        sides = {"encoder": self.encoder, "decoder": self.decoder}
        return {
            f"{side}.{name}": style for side, part in sides.items() for name, style in part.base_model_tp_plan.items()
        }

    @classmethod
    def known_fields(cls) -> set[str]:
        """Every name this config or one of its parts declares, so that a misspelt shared field is found too."""
        return super().known_fields() | QkvEncoderConfig.known_fields() | QkvDecoderConfig.known_fields()

    @property
    def frontend(self) -> str:
        """The encoder's: what the model reads."""
        return str(self.encoder.frontend)

    @property
    def max_source_positions(self) -> int:
        """The encoder's longest input, after its convolutions; transformers' code for Whisper asks for it."""
        return int(self.encoder.max_position_embeddings)

    @property
    def max_target_positions(self) -> int:
        """The decoder's longest text; asked for as well."""
        return int(self.decoder.max_position_embeddings)

    @property
    def hidden_size(self) -> int:
        """The decoder's width, which is the width of what the head reads."""
        return self.decoder.hidden_size

    @property
    def vocab_size(self) -> int:
        """The decoder's vocabulary: what the head predicts."""
        return self.decoder.vocab_size

    @property
    def num_hidden_layers(self) -> int:
        """The decoder's depth."""
        return self.decoder.num_hidden_layers

    @property
    def decoder_layers(self) -> int:
        """The same, as Whisper's code calls it."""
        return self.num_hidden_layers

    def validate_parts(self) -> None:
        """Memory has the width the decoder reads, and a shared table has one shape."""
        encoder, decoder = self.encoder, self.decoder
        refuse_other_width(encoder, decoder)
        if self.share_embeddings and (encoder.frontend != "tokens" or encoder.vocab_size != decoder.vocab_size):
            raise ValueError(
                f"share_embeddings=True needs one vocabulary, got {encoder.frontend} of {encoder.vocab_size} for the "
                f"encoder and {decoder.vocab_size} for the decoder; set share_embeddings=False"
            )
        if self.share_embeddings and encoder.embedding_size != decoder.embedding_size:
            raise ValueError(
                f"share_embeddings=True needs one embedding_size, got {encoder.embedding_size} for the encoder and "
                f"{decoder.embedding_size} for the decoder; set share_embeddings=False"
            )
        if not decoder.cross_attention:
            raise ValueError("decoder cross_attention=False cannot read the encoder; use QkvDecoderConfig instead")

    def validate_start(self) -> None:
        """Generation and the right shift of labels both begin with a start token."""
        refuse_other_ids(self, "decoder_start_token_id", "pad_token_id")


def refuse_other_width(encoder: Any, decoder: Any) -> None:
    """Raise when a decoder cannot read what an encoder gives."""
    if encoder.hidden_size != decoder.hidden_size:
        raise ValueError(
            f"encoder hidden_size={encoder.hidden_size} differs from decoder hidden_size={decoder.hidden_size}; "
            "cross-attention reads the encoder's output at the decoder's width"
        )


def refuse_other_ids(config: Any, *names: str) -> None:
    """Raise when one of these fields is no id of the vocabulary."""
    for name in names:
        value = getattr(config, name)
        if value is None or not 0 <= value < config.vocab_size:
            raise ValueError(f"{name}={value} must be a token id from 0 to {config.vocab_size - 1}")


def part(config_class: type[QkvConfig], given: Any, shared: dict[str, Any]) -> QkvConfig:
    """A sub-config from shared fields and its own differences; a finished sub-config passes unchanged."""
    if isinstance(given, QkvConfig):
        return given
    declared = config_class.known_fields() - SHARED_BY_TRANSFORMERS
    shared = {name: deepcopy(value) for name, value in shared.items() if name in declared}
    config = config_class(**{**shared, **(given or {})})
    # The whole is what Auto classes load; a part's own map would only repeat itself in every config.json.
    del config.auto_map
    return config
