"""Decoders: GPT-2, OPT, BLOOM, GPT-NeoX, Llama, Mistral, Qwen, and the decoder half of an encoder-decoder."""

from typing import ClassVar

from .axes import ActivationName, FrontendName
from .configuration_base import auto_classes_of
from .configuration_experts import ExpertsConfig
from .configuration_stack import TextGridConfig
from .earlier_names import root_of_width
from .fields import Derived, Fields, at_least, positive, rate, size_of


class QkvDecoderConfig(ExpertsConfig, TextGridConfig):
    """Configure a causal stack over tokens, alone or as the decoder of an encoder-decoder.

    Args:
        embedding_size: Width of token embeddings, mapped linearly in and out (OPT-350m). None is `hidden_size`.
        logit_scale: Factor on the last hidden state before the head, so on logits without a bias; TRL and serving
            engines read it by this name (T5 v1.0 divides by sqrt(hidden_size)).
        final_logit_softcapping: Bound c that logits s approach, c·tanh(s/c) (Gemma 2). None is none.
        lm_head_transform: Whether a linear map, activation and norm stand before the head (Ettin).
        head_act: Activation of that linear map. None is `hidden_act`.
        head_bias: Whether it has a bias.
        lm_head_bias: Whether the language-modelling head has a bias (BART, Marian).
        attention_sinks: Whether each head has a learned logit beside those of keys, so it may read nothing (GPT-OSS).
        cross_attention: Whether each layer attends to the output of an encoder.
        label_smoothing: Probability that the loss moves from the right token to all of them evenly; not read by TRL.
    """

    model_type = "qkv_decoder"
    causal: ClassVar[bool] = True
    frontend: ClassVar[FrontendName] = "tokens"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "decoder",
        "QkvDecoder",
        "CausalLM SequenceClassification TokenClassification QuestionAnswering",
        # A decision pipeline reads the next token of any causal LM; `transformers serve` asks this Auto class first.
        ForDecision="ForCausalLM",
    )

    # Later stages are given hidden states as embeddings, to which a stack without its first layer adds no positions.
    base_model_pp_plan: ClassVar[Fields] = {
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
        "norm": (["hidden_states"], ["hidden_states"]),
    }

    vocab_size: int = at_least(1, 50257)
    embedding_multiplier: float | int = positive(1.0)
    embedding_size: Derived = size_of("hidden_size")
    logit_scale: float | int = positive(1.0)
    final_logit_softcapping: float | int | None = positive()
    lm_head_transform: bool = False
    head_act: ActivationName | None = None
    head_bias: bool = True
    lm_head_bias: bool = False
    attention_sinks: bool = False
    cross_attention: bool = False
    classifier_dropout: float | int = rate()
    label_smoothing: float | int = rate()
    use_cache: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    scale_embedding = root_of_width("embedding_multiplier", 0.5)
    scale_logits = root_of_width("logit_scale", -0.5)

    def validate_lm_head(self) -> None:
        """Check that a head beside an encoder is a linear map alone, and that one with a transform reads its width."""
        beside = [name for name in ("lm_head_transform", "final_logit_softcapping") if getattr(self, name)]
        if self.cross_attention and beside:
            raise ValueError(f"{beside[0]}={getattr(self, beside[0])} is for decoders alone, got cross_attention=True")
        if self.lm_head_transform and self.embedding_size != self.hidden_size:
            raise ValueError(f"lm_head_transform=True needs embedding_size={self.embedding_size} to be hidden_size")

    def validate_sinks(self) -> None:
        """Check that attention has scores, to which a sink adds one."""
        if self.attention_sinks and self.kernel != "softmax":
            raise ValueError(f"attention_sinks=True needs kernel='softmax', got kernel={self.kernel!r}")

    @property
    def rotary_dim(self) -> int:
        """Number of components of a head that one set of `rope_parameters` rotates, in pairs."""
        parameters: Fields = {**(self.rope_parameters or {})}
        size = int(self.head_dim * parameters.get("partial_rotary_factor", 1.0))
        return size + size % 2

    @property
    def position_width(self) -> int:
        """Width of what positions are added to: that of the layers."""
        return self.hidden_size

    @property
    def output_width(self) -> int:
        """Width of what the head reads: that of token embeddings, whose table it may share."""
        return self.embedding_width
