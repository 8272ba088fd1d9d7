"""Attention: heads, their norms and gates, kernels."""

from itertools import product
from typing import ClassVar, Literal, get_args

from .axes import (
    BIAS_POSITIONS,
    GRID_PATTERNS,
    RECURRENT_KERNELS,
    ROTARY_POSITIONS,
    STATE_KERNELS,
    FeatureMapName,
    KernelName,
    ProjectionName,
    QueryKeyNormName,
)
from .configuration_pattern import check_words_of_layers, words_of_layers
from .configuration_position import PositionConfig
from .fields import Derived, at_least, positive, rate, size_of


class AttentionConfig(PositionConfig):
    """Configure the attention of one stack: heads and kernel, over the position encoding and attention pattern.

    Args:
        num_attention_heads: Number of query heads.
        num_key_value_heads: Number of key-value heads of grouped-query attention. None is `num_attention_heads`.
        head_dim: Width of one head. None is `hidden_size // num_attention_heads`.
        attention_bias: Projections that have a bias: all, none, or a list (Whisper has none on `k_proj`).
        query_key_norm: Norm of queries and keys: `none`; `head`, each head with one gain for all (Qwen3); `each_head`,
            with a gain of its own (Cohere); `width`, all heads together (OLMo 2); `head_after_rotation`, each head
            after it was given its position (HunYuan).
        attention_gate: Whether what each head reads is scaled by a sigmoid of the query's input (AlphaFold 2);
            `unbiased`, by a linear map without a bias (AFMoE).
        attn_logit_softcapping: Bound c that scores s approach, c·tanh(s/c) (Gemma 2). None is none; sdpa cannot compute
            it, and eager attention takes its place.
        attention_multiplier: Factor on the attention scores. None is `head_dim**-0.5`; T5 uses 1.
        kernel: Weights of the values, one word for all layers or a list with one for each: `softmax` of scores;
            `linear`, products of features of queries and keys, in linear time with a cache of one size; `gated_delta`,
            such a cache that replaces and forgets values (Gated DeltaNet), for decoders and the texts of pairs alone.
        feature_map: Features of `kernel="linear"`: `elu`, elu(x) + 1 (Linear Transformer); `relu` (cosFormer).
    """

    # Whether the stack may look ahead belongs to the family, never to the user.
    causal: ClassVar[bool] = False
    # A field of decoders alone.
    linear_conv_kernel_dim = 0

    num_attention_heads: int = at_least(1, 12)
    num_key_value_heads: Derived = size_of("num_attention_heads")
    head_dim: Derived = at_least(1, follows=lambda config: head_size(config.hidden_size, config.num_attention_heads))
    attention_bias: bool | list[ProjectionName] = True
    query_key_norm: QueryKeyNormName = "none"
    attention_gate: bool | Literal["unbiased"] = False
    attention_multiplier: float | int | None = positive()
    attn_logit_softcapping: float | int | None = positive()
    attention_dropout: float | int = rate()
    kernel: KernelName | list[KernelName] = "softmax"
    feature_map: FeatureMapName = "elu"

    def __post_init__(self, **kwargs: object) -> None:
        if isinstance(self.attention_bias, list):
            biased = [name for name in get_args(ProjectionName) if name in self.attention_bias]
            self.attention_bias = bool(biased) if len(biased) in (0, 4) else biased
        super().__post_init__(**kwargs)

    @property
    def biased_projections(self) -> tuple[ProjectionName, ...]:
        """The projections of attention that have a bias."""
        if isinstance(self.attention_bias, list):
            return tuple(self.attention_bias)
        return get_args(ProjectionName) if self.attention_bias else ()

    def validate_heads(self) -> None:
        """Check that heads divide evenly, and that rope can pair the components of a head."""
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        if heads % groups:
            raise ValueError(f"num_attention_heads={heads} must be a multiple of num_key_value_heads={groups}")
        if self.position_word in ROTARY_POSITIONS and self.head_dim % 2:
            raise ValueError(f"position={self.position!r} rotates pairs, so head_dim={self.head_dim} must be even")

    def validate_rope(self) -> None:
        """Check the rotary parameters, and that longrope has a factor for each pair of components."""
        super().validate_rope()
        for name, rope in product(("short_factor", "long_factor"), map(self.rope_of, self.layer_patterns)):
            pairs, factors = int(self.head_dim * rope.get("partial_rotary_factor", 1.0)) // 2, rope.get(name)
            good = [factor for factor in factors if factor > 0] if isinstance(factors, list) else []
            if rope.get("rope_type") == "longrope" and not (good == factors and len(good) == pairs):
                rule = f"{pairs} numbers above 0, one for each rotated pair"
                raise ValueError(f"{name}={factors} of rope_parameters must be {rule}")

    def validate_softcapping(self) -> None:
        """Check that all scores of a stack are bounded alike."""
        beside = [name for name in ("cross_attention", "global_projections") if getattr(self, name, False)]
        if beside and self.attn_logit_softcapping is not None:
            raise ValueError(
                f"attn_logit_softcapping={self.attn_logit_softcapping} needs {beside[0]}=False; leave one out"
            )

    @property
    def layer_kernels(self) -> list[KernelName]:
        """The kernel of each layer."""
        return words_of_layers(self.kernel, self.num_hidden_layers)

    @property
    def keeps_state(self) -> bool:
        """True where a layer keeps a state instead of keys and values."""
        return any(word in STATE_KERNELS for word in words_of_layers(self.kernel, count=1))

    @property
    def layer_masks(self) -> list[str]:
        """The kind of mask of each layer: that of its pattern, or of single tokens where it keeps a state."""
        if not self.keeps_state:
            return [*self.layer_patterns]
        pairs = zip(self.layer_kernels, self.layer_patterns, strict=True)
        return ["state" if kernel in STATE_KERNELS else pattern for kernel, pattern in pairs]

    def validate_kernel(self) -> None:
        """Check that a kernel that keeps a state is asked for nothing that acts on single pairs of tokens."""
        check_words_of_layers("kernel", self.layer_kernels, self.num_hidden_layers)
        if len({*self.layer_kernels}) > 1 and getattr(self, "cross_attention", False):
            raise ValueError(f"kernel={self.kernel} of single layers needs cross_attention=False; use one word")
        if {*RECURRENT_KERNELS} & {*self.layer_kernels}:
            check_order(self)
        check_no_scores(self)


def grid_words(config: AttentionConfig) -> list[str]:
    """Return the words of a config that ask for rows and columns, each with its field."""
    patterns = [f"pattern={word!r}" for word in config.layer_patterns if word in GRID_PATTERNS]
    return ["position='grid'", *patterns] if config.position_word == "grid" else patterns


def check_grid(config: AttentionConfig, tokens: str) -> None:
    """Raise ValueError where rows and columns are asked for of tokens that fill no grid of one width."""
    if words := grid_words(config):
        raise ValueError(f"{words[0]} needs tokens in rows of one length, which {tokens} do not fill; use another word")


def head_size(hidden_size: int, heads: int) -> int:
    """Return the width of a head; ValueError where the hidden size does not divide into heads."""
    if hidden_size % heads:
        raise ValueError(f"hidden_size={hidden_size} is not a multiple of num_attention_heads={heads}; set head_dim")
    return hidden_size // heads


def check_no_scores(config: AttentionConfig) -> None:
    """Raise ValueError where a layer whose kernel has no scores is asked to change or to hide some."""
    kernel = f"kernel={config.kernel!r}"
    for word, position, pattern in zip(
        config.layer_kernels, config.layer_positions, config.layer_patterns, strict=False
    ):
        if word in STATE_KERNELS and position in (*BIAS_POSITIONS, "xpos"):
            raise ValueError(f"{kernel} has no scores for position={config.position!r}; use 'rope' or kernel='softmax'")
        if word in STATE_KERNELS and pattern != "full":
            raise ValueError(f"{kernel} keeps one state of all tokens, got pattern={pattern!r}; use 'full'")
    for name, default in (("attention_dropout", 0), ("attention_multiplier", None), ("attn_logit_softcapping", None)):
        if "softmax" not in config.layer_kernels and getattr(config, name) != default:
            raise ValueError(f"{kernel} has no scores for {name}={getattr(config, name)}; leave it at {default}")


def check_order(config: AttentionConfig) -> None:
    """Raise ValueError where a kernel whose tokens act one after another would read both ways, or an encoder."""
    kernel, right = f"kernel={config.kernel!r}", "'linear' or 'softmax'"
    if not config.causal:
        raise ValueError(f"{kernel} reads from left to right, which {type(config).__name__} does not; use {right}")
    if getattr(config, "cross_attention", False):
        raise ValueError(f"{kernel} has no cross-attention, got cross_attention=True; use {right}")
