"""Decoders: GPT-2, OPT, BLOOM, GPT-NeoX, Llama, Mistral, Qwen, and the decoder half of an encoder-decoder."""

from typing import Any, ClassVar

from .configuration_base import Derived, at_least, checked, rate
from .configuration_stack import StackConfig


@checked
class QkvDecoderConfig(StackConfig):
    """A causal stack over tokens; with `cross_attention` each layer also reads an encoder's output.

    `scale_logits` multiplies the last hidden state by 1/sqrt(hidden_size) before the head (T5 v1.0). `lm_head_bias`
    adds a bias to the logits (BART, Marian). `label_smoothing` acts inside the model's loss. `embedding_size` is the
    width of token embeddings and of what the heads read where it differs from that of the layers: linear maps without
    bias lead in, before positions are added, and out, after the last norm (OPT-350m).
    """

    model_type = "qkv_decoder"
    causal: ClassVar[bool] = True
    frontend: ClassVar[str] = "tokens"
    keys_to_ignore_at_inference = ["past_key_values"]
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_decoder.QkvDecoderConfig",
        "AutoModel": "modeling_decoder.QkvDecoderModel",
        "AutoModelForCausalLM": "modeling_decoder.QkvDecoderForCausalLM",
        "AutoModelForSequenceClassification": "modeling_decoder.QkvDecoderForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_decoder.QkvDecoderForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_decoder.QkvDecoderForQuestionAnswering",
    }

    vocab_size: int = at_least(1, 50257)
    type_vocab_size: ClassVar[int] = 0
    scale_embedding: bool = False
    embedding_size: Derived = at_least(1)
    scale_logits: bool = False
    lm_head_bias: bool = False
    cross_attention: bool = False
    classifier_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    use_cache: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        super().__post_init__(**kwargs)

    @property
    def position_width(self) -> int:
        """That of the layers."""
        return self.hidden_size

    @property
    def output_width(self) -> int:
        """That of token embeddings, so that scores may share their table."""
        return self.embedding_width
