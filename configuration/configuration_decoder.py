"""Decoders: GPT-2, Llama, Mistral, and the decoder half of an encoder-decoder."""

from typing import ClassVar

from .configuration_base import at_least, checked, rate
from .configuration_stack import StackConfig


@checked
class QkvDecoderConfig(StackConfig):
    """A causal stack over tokens; with `cross_attention` each layer also reads an encoder's output.

    `scale_logits` multiplies the last hidden state by 1/sqrt(hidden_size) before the head (T5 v1.0). `lm_head_bias`
    adds a bias to the logits (BART, Marian). `label_smoothing` acts inside the model's loss.
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
