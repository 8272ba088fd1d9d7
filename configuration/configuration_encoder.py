"""Encoders: BERT and RoBERTa over tokens, ViT and DeiT over patches, CLIP's over either, speech over frames."""

from typing import Any, ClassVar

from .axes import ActivationName, FrontendName, PoolingName
from .configuration_base import Derived, at_least, bounded, checked, rate
from .configuration_spectrogram import SpectrogramConfig


def is_size(size: int | list[int] | tuple[int, ...]) -> bool:
    """Whether this is one side or two, none of them empty."""
    return size >= 1 if isinstance(size, int) else len(size) == 2 and min(size) >= 1


# size: a field for each thing that a frontend or a head can have
@checked
class QkvEncoderConfig(SpectrogramConfig):
    """A bidirectional stack over tokens, image patches or sound.

    `image_size` is a side or (height, width); `patch_size` must divide it. `patch_bias=False` maps patches by a matrix
    alone (CLIP). `class_token` and `distillation_token` are
    put before the patches. `pooling` says what a sequence-level head reads: `first` token, `dense` (tanh of a linear
    map of the first token, BERT), `mean` over real tokens, `distilled` (class and distillation token, DeiT),
    `first_mean` (class token beside the mean of the patches, DINOv2), `first_norm` (norm of the first token, CLIP),
    `end` (first `eos_token_id`, CLIP), `highest` (highest token id, the first CLIP). `scale_embedding` multiplies
    embeddings of tokens and sound by sqrt(hidden_size); `embedding_size` is the width of the former where it differs
    (ELECTRA). `interpolate_positions` admits images of any size without being asked. `label_smoothing` acts inside the
    model's loss.
    Heads: `head_transform` puts a linear map, activation and norm before each classifier (ModernBERT); `head_act` is
    that activation and that of dense pooling, otherwise `hidden_act` and tanh; `head_bias` and `lm_head_bias` are the
    biases of that map and of the scores of words. Dropout: `pooling_dropout` before dense pooling (RoBERTa),
    `classifier_dropout` before a classifier, `qa_dropout` before the scores of answers.
    """

    model_type = "qkv_encoder"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_encoder.QkvEncoderConfig",
        "AutoModel": "modeling_encoder.QkvEncoderModel",
        "AutoModelForMaskedLM": "modeling_encoder.QkvEncoderForMaskedLM",
        "AutoModelForPreTraining": "modeling_encoder.QkvEncoderForPreTraining",
        "AutoModelForSequenceClassification": "modeling_encoder.QkvEncoderForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_encoder.QkvEncoderForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_encoder.QkvEncoderForQuestionAnswering",
        "AutoModelForMultipleChoice": "modeling_encoder.QkvEncoderForMultipleChoice",
        "AutoModelForImageClassification": "modeling_encoder.QkvEncoderForImageClassification",
        "AutoModelForMaskedImageModeling": "modeling_encoder.QkvEncoderForMaskedImageModeling",
        "AutoModelForCTC": "modeling_encoder.QkvEncoderForCTC",
    }

    frontend: FrontendName = "tokens"
    vocab_size: int = at_least(1, 30522)
    type_vocab_size: int = at_least(0, 0)
    scale_embedding: bool = False
    embedding_size: Derived = at_least(1)
    image_size: int | list[int] | tuple[int, int] = bounded(224, is_size, "be a side or (height, width) in pixels")
    patch_size: int = at_least(1, 16)
    num_channels: int = at_least(1, 3)
    patch_bias: bool = True
    class_token: bool = True
    distillation_token: bool = False
    mask_token: bool = False
    interpolate_positions: bool = False
    pooling: PoolingName = "first"
    head_transform: bool = False
    head_act: ActivationName | None = None
    head_bias: bool = True
    lm_head_bias: bool = True
    pooling_dropout: float | int = rate()
    classifier_dropout: float | int = rate()
    qa_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.image_size, tuple):
            # JSON knows lists only, and a loaded config equals the saved one.
            self.image_size = list(self.image_size)
        if self.frontend == "patches":
            rows, columns = self.grid
            self.max_position_embeddings = rows * columns + self.num_prefix_tokens
        # transformers looks through them where an Auto class has several models of ours.
        self.architectures = self.architectures or []
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        super().__post_init__(**kwargs)

    @property
    def image_shape(self) -> tuple[int, int]:
        """(height, width) of the images the position table was made for."""
        size = self.image_size
        return (size, size) if isinstance(size, int) else (size[0], size[1])

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        height, width = self.image_shape
        return height // self.patch_size, width // self.patch_size

    @property
    def num_prefix_tokens(self) -> int:
        """How many tokens stand before the first patch."""
        return int(self.class_token) + int(self.distillation_token) if self.frontend == "patches" else 0

    @property
    def has_padding_inside(self) -> bool:  # type: ignore[override]
        """True for images, whose rows may end in padding: padding then stands between real tokens."""
        return self.frontend == "patches"

    @property
    def tie_last_hidden_states(self) -> bool:
        """Whether the last recorded hidden state is the normalised one: for images it is not."""
        return self.frontend != "patches"

    def validate_patches(self) -> None:
        """Patches tile the image."""
        height, width = self.image_shape
        if self.frontend == "patches" and (height % self.patch_size or width % self.patch_size):
            raise ValueError(
                f"image_size={self.image_size} is not a multiple of patch_size={self.patch_size}; resize or repatch"
            )

    def validate_embedding_size(self) -> None:
        """Only tokens are looked up in a table that may be narrower."""
        if self.frontend != "tokens" and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"embedding_size={self.embedding_size} is for frontend='tokens'; leave it out for {self.frontend}"
            )

    def validate_pooling(self) -> None:
        """A head can only read tokens that are there."""
        patches = self.frontend == "patches"
        if self.pooling in ("end", "highest") and patches:
            raise ValueError(f"pooling={self.pooling!r} reads a token of a text; use 'first' or 'mean' for patches")
        if self.pooling == "end" and not isinstance(self.eos_token_id, int):
            raise ValueError(f"pooling='end' needs one eos_token_id, got {self.eos_token_id}; set it or pooling='mean'")
        if self.pooling == "distilled" and not (patches and self.class_token and self.distillation_token):
            raise ValueError("pooling='distilled' needs frontend='patches' with class_token and distillation_token")
        if self.pooling == "first_mean" and not (patches and self.class_token):
            raise ValueError("pooling='first_mean' needs frontend='patches' with class_token")
        if patches and self.pooling in ("first", "dense", "first_norm") and not self.class_token:
            raise ValueError(f"pooling={self.pooling!r} reads the class token: set class_token=True or pooling='mean'")
