"""Encoder-decoders over text: the 2017 Transformer, T5, BART, Marian and their multilingual descendants."""

from typing import ClassVar

from .configuration_base import QkvConfig, auto_classes_of
from .configuration_composite import CompositeConfig, check_same_width, part_property
from .configuration_decoder import QkvDecoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_stack import StackConfig
from .fields import Derived, Fields, Part, positive, rate

# PEFT makes soft prompts by these names in the dict of a config: tokens of the encoder's width, which is the decoder's,
# and keys and values in front of the decoder's.
PROMPT_FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")


class Seq2SeqConfig(CompositeConfig):
    """Configure an encoder and a decoder that attends to its output.

    Args:
        start_with_last_token: Whether it starts from each text's own last token instead (mBART's language token).
    """

    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    # The width by the name that tools know from T5 and BART.
    attribute_map: ClassVar[dict[str, str]] = {"d_model": "hidden_size"}
    encoder: Part[StackConfig] = None  # type: ignore[assignment]  # made in __post_init__
    decoder: Part[QkvDecoderConfig] = None  # type: ignore[assignment]
    tie_word_embeddings: bool = True
    label_smoothing: float | int = rate()
    initializer_range: float | int = positive(0.02)
    use_cache: bool = True
    is_encoder_decoder: bool = True
    decoder_start_token_id: Derived = 0
    start_with_last_token: bool = False
    pad_token_id: Derived = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 1

    def __post_init__(self, **kwargs: object) -> None:
        ids = {name: getattr(self, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        own = {"vocab_size": 32128, "initializer_range": self.initializer_range, **ids}
        super().__post_init__(**self.make_parts(kwargs, encoder=own, decoder={**own, "cross_attention": True}))

    hidden_size = part_property("hidden_size", "decoder", "encoder")
    vocab_size = part_property("vocab_size", "decoder", "encoder", shared="share_embeddings")
    num_hidden_layers = part_property("num_hidden_layers", "decoder")
    num_attention_heads = part_property("num_attention_heads", "decoder")

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Plan of tensor parallelism: those of both parts, or of the encoder alone."""
        plan = super().base_model_tp_plan
        return {name: plan[name] for name in plan if self.is_encoder_decoder or name.startswith("encoder.")}

    def to_dict(self) -> Fields:
        """Return all fields, and the decoder's sizes by the names under which PEFT looks for those of a soft prompt."""
        return {**super().to_dict(), **{name: getattr(self.decoder, name) for name in PROMPT_FIELDS}}

    def to_diff_dict(self) -> Fields:
        """Return what is saved, where sizes stand in the parts alone."""
        return {name: value for name, value in super().to_diff_dict().items() if name not in PROMPT_FIELDS}

    def validate_parts(self) -> None:
        """Check that the decoder can read the encoder's output and has a token to start from."""
        check_same_width(self.encoder, self.decoder)
        if not self.decoder.cross_attention:
            raise ValueError("decoder cross_attention=False cannot read the encoder; use QkvDecoderConfig instead")
        check_token_ids(self, "decoder_start_token_id", "pad_token_id")


class QkvEncoderDecoderConfig(Seq2SeqConfig):
    """Configure an encoder-decoder over text: the 2017 Transformer, T5, BART, Marian.

    Fields of `QkvEncoderConfig` and `QkvDecoderConfig` may be given flat for both.
    """

    model_type = "qkv_encoder_decoder"
    sub_configs_defaults = {"encoder": QkvEncoderConfig, "decoder": QkvDecoderConfig}
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "encoder_decoder",
        "QkvEncoderDecoder",
        "SequenceClassification QuestionAnswering",
        ForTextEncoding="EncoderModel",
        ForSeq2SeqLM="ForConditionalGeneration",
    )

    encoder: Part[QkvEncoderConfig] = None  # type: ignore[assignment]
    share_embeddings: bool = True
    classifier_dropout: float | int = rate()

    def validate_shared_table(self) -> None:
        """Check that a shared table of embeddings has one shape."""
        for name in ("vocab_size", "embedding_size"):
            sizes = f"{name}={getattr(self.encoder, name)}", f"{name}={getattr(self.decoder, name)}"
            if self.share_embeddings and sizes[0] != sizes[1]:
                raise ValueError(f"share_embeddings=True needs one size, got {' and '.join(sizes)}; set it to False")


def check_token_ids(config: QkvConfig, *names: str) -> None:
    """Raise ValueError where one of these fields is no id of the vocabulary."""
    size: int = config.vocab_size
    for name in names:
        value = getattr(config, name)
        if value is None or not 0 <= value < size:
            raise ValueError(f"{name}={value} must be a token id from 0 to {size - 1}")
