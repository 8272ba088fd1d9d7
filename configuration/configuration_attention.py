"""Attention: heads, position encoding, rotary parameters, kernels."""

from copy import deepcopy
from difflib import get_close_matches
from math import inf
from typing import ClassVar, get_args

from transformers.modeling_rope_utils import RopeParameters

from .axes import (
    BIAS_POSITIONS,
    GRID_PATTERNS,
    RECURRENT_KERNELS,
    ROTARY_POSITIONS,
    STATE_KERNELS,
    FeatureMapName,
    KernelName,
    PatternName,
    PositionName,
    ProjectionName,
)
from .configuration_pattern import CACHE_LAYER_TYPES, PatternConfig
from .fields import Derived, Fields, at_least, check_choice, positive, rate, size_of

# Kinds of rope scaling; transformers names the parameters that one of them lacks.
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")
# Numbers among rotary parameters with their bounds; all are above 0.
POSITIVE = "rope_theta original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow".split()
ROPE_NUMBERS = {**dict.fromkeys(POSITIVE, (0, inf)), "factor": (1, inf), "partial_rotary_factor": (0, 1)}


class AttentionConfig(PatternConfig):
    """Configure the attention of one stack: heads, position encoding and attention pattern.

    Args:
        num_attention_heads: Number of query heads.
        num_key_value_heads: Number of key-value heads of grouped-query attention. None is `num_attention_heads`.
        head_dim: Width of one head. None is `hidden_size // num_attention_heads`.
        attention_bias: Projections that have a bias: all, none, or a list (Whisper has none on `k_proj`).
        query_key_norm: Whether the queries and keys of each head are normalised (Qwen3).
        attention_gate: Whether what each head reads is scaled by a sigmoid of the query's input (AlphaFold 2).
        attention_multiplier: Factor on the attention scores. None is `head_dim**-0.5`; T5 uses 1.
        position: Position encoding: `learned`, a table (GPT-2); `grid`, a table each for text, rows and columns
            (DALL-E); `sinusoidal`, sines and cosines interleaved (Transformer), `sinusoidal_concat`, sines before
            cosines (Marian), `sinusoidal_t2t`, the same with the frequencies of Tensor2Tensor (M2M100); `rope` and
            `xpos`, rotated queries and keys (Llama); `alibi`, `t5` and `kerple`, a bias on the scores; `none`.
        max_position_embeddings: Longest sequence in tokens, for encodings that look positions up in a table.
        position_offset: Number of the first position in a table or a sinusoid; RoBERTa, BART and M2M100 start at 2.
        rope_parameters: Parameters of `position="rope"` as in transformers, and `inv_freq_dtype`, to which frequencies
            are rounded (float16 of ESM-2); or a dict of them for each pattern (ModernBERT).
        relative_attention_num_buckets: Number of buckets of distances for `position="t5"`.
        relative_attention_max_distance: Distance in tokens from which on all fall into the last bucket.
        kernel: Weights of the values: `softmax` of scores; `linear`, products of features of queries and keys, in
            linear time with a cache of one size; `gated_delta`, such a cache that replaces and forgets values (Gated
            DeltaNet), for decoders and the texts of pairs alone.
        feature_map: Features of `kernel="linear"`: `elu`, elu(x) + 1 (Linear Transformer); `relu` (cosFormer).
    """

    ignore_keys_at_rope_validation: ClassVar[set[str]] = {"inv_freq_dtype"}  # type: ignore[misc]  # no field here
    # Whether the stack may look ahead belongs to the family, never to the user.
    causal: ClassVar[bool] = False

    hidden_size: int = at_least(1, 768)
    num_attention_heads: int = at_least(1, 12)
    num_key_value_heads: Derived = size_of("num_attention_heads")
    head_dim: Derived = at_least(1, follows=lambda config: head_size(config.hidden_size, config.num_attention_heads))
    attention_bias: bool | list[ProjectionName] = True
    query_key_norm: bool = False
    attention_gate: bool = False
    attention_multiplier: float | int | None = positive()
    attention_dropout: float | int = rate()
    position: PositionName = "learned"
    max_position_embeddings: int = at_least(1, 512)
    position_offset: int = at_least(0, 0)
    rope_parameters: RopeParameters | Fields | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    kernel: KernelName = "softmax"
    feature_map: FeatureMapName = "elu"

    def __post_init__(self, **kwargs: object) -> None:
        turned = self.rope_parameters or "rope_theta" in kwargs or "rope_scaling" in kwargs
        if turned and self.position not in ROTARY_POSITIONS:
            raise ValueError(f"rope_parameters is set but position={self.position!r}; set position='rope' or drop it")
        if isinstance(self.attention_bias, list):
            biased = [name for name in get_args(ProjectionName) if name in self.attention_bias]
            self.attention_bias = bool(biased) if len(biased) in (0, 4) else biased
        # transformers fills it in place, and what was given may be shared.
        self.rope_parameters = deepcopy(self.rope_parameters or {})
        super().__post_init__(**kwargs)
        if self.position not in ROTARY_POSITIONS:  # transformers fills in a default
            self.rope_parameters = None

    @property
    def biased_projections(self) -> tuple[ProjectionName, ...]:
        """The projections of attention that have a bias."""
        if isinstance(self.attention_bias, list):
            return tuple(self.attention_bias)
        return get_args(ProjectionName) if self.attention_bias else ()

    @property
    def grid_rows(self) -> int:
        """Number of rows that the tokens after the text fill."""
        return -(-(self.max_position_embeddings - self.text_length) // self.grid_columns)

    def nested_rope_parameter_keys(self, rope_parameters: RopeParameters | Fields) -> list[str]:
        """Return the patterns that rotary parameters are nested under, where transformers looks for types of layers."""
        return [word for word in rope_parameters if word in CACHE_LAYER_TYPES]

    @property
    def rope_by_pattern(self) -> bool:
        """True where `rope_parameters` hold a set for each pattern."""
        return bool(self.nested_rope_parameter_keys(self.rope_parameters or {}))

    def rope_of(self, pattern: str | None) -> Fields:
        """Return the rotary parameters of the layers of a pattern."""
        parameters = dict(self.rope_parameters or {})
        return parameters[str(pattern)] if self.rope_by_pattern else parameters

    def validate_heads(self) -> None:
        """Check that heads divide evenly, and that rope can pair the components of a head."""
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        if heads % groups:
            raise ValueError(f"num_attention_heads={heads} must be a multiple of num_key_value_heads={groups}")
        if self.position in ROTARY_POSITIONS and self.head_dim % 2:
            raise ValueError(f"position={self.position!r} rotates pairs, so head_dim={self.head_dim} must be even")

    def validate_positions(self) -> None:
        """Check that the position encoding has the sizes it needs."""
        size, text, buckets = self.max_position_embeddings, self.text_length, self.relative_attention_num_buckets
        position, distance = f"position={self.position!r}", self.relative_attention_max_distance
        if self.position.startswith("sinusoidal") and self.hidden_size % 2:
            raise ValueError(f"{position} pairs sines with cosines, so hidden_size={self.hidden_size} must be even")
        if self.position == "grid" and size <= text:
            raise ValueError(f"{position} has rows: max_position_embeddings={size} must exceed text_length={text}")
        if buckets < 4 or buckets % 2:  # T5's, half exact and half logarithmic
            raise ValueError(f"relative_attention_num_buckets={buckets} must be even and at least 4")
        if distance <= buckets:
            names = f"relative_attention_max_distance={distance} must exceed relative_attention_num_buckets={buckets}"
            raise ValueError(names)

    def validate_kernel(self) -> None:
        """Check that a kernel that keeps a state is asked for nothing that acts on single pairs of tokens."""
        if self.kernel in RECURRENT_KERNELS:
            check_order(self)
        if self.kernel in STATE_KERNELS:
            check_no_scores(self)

    def validate_rope(self) -> None:
        """Check the rotary parameters, most of which transformers only logs about."""
        if self.position in ROTARY_POSITIONS:
            check_rope(dict(self.rope_parameters or {}), self.layer_patterns if self.rope_by_pattern else [])
            try:
                super().validate_rope()
            except KeyError as error:
                raise ValueError(f"rope_parameters={self.rope_parameters}: {error.args[0]}") from None


def grid_words(config: AttentionConfig) -> list[str]:
    """Return the words of a config that ask for rows and columns, each with its field."""
    patterns = [f"pattern={word!r}" for word in config.layer_patterns if word in GRID_PATTERNS]
    return ["position='grid'", *patterns] if config.position == "grid" else patterns


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
    """Raise ValueError where a kernel that has no scores is asked to change or to hide some."""
    kernel, patterns = f"kernel={config.kernel!r}", {*config.layer_patterns} - {"full"}
    if config.position in (*BIAS_POSITIONS, "xpos"):
        raise ValueError(f"{kernel} has no scores for position={config.position!r}; use 'rope' or kernel='softmax'")
    if patterns:
        raise ValueError(f"{kernel} keeps one state of all tokens, got pattern={min(patterns)!r}; use 'full'")
    for name, default in (("attention_dropout", 0), ("attention_multiplier", None)):
        if getattr(config, name) != default:
            raise ValueError(f"{kernel} has no scores for {name}={getattr(config, name)}; leave it at {default}")


def check_order(config: AttentionConfig) -> None:
    """Raise ValueError where a kernel whose tokens act one after another would read both ways, or an encoder."""
    kernel, right = f"kernel={config.kernel!r}", "'linear' or 'softmax'"
    if not config.causal:
        raise ValueError(f"{kernel} reads from left to right, which {type(config).__name__} does not; use {right}")
    if getattr(config, "cross_attention", False):
        raise ValueError(f"{kernel} has no cross-attention, got cross_attention=True; use {right}")


def check_rope(given: Fields, patterns: list[PatternName]) -> None:
    """Raise ValueError on wrong rotary parameters, given once or for each pattern."""
    for word in dict.fromkeys([*patterns, *given]) if patterns else ():
        check_choice(tuple(CACHE_LAYER_TYPES), "pattern of rope_parameters", word)
        if not isinstance(given.get(word), dict):
            raise ValueError(f"rope_parameters say nothing about pattern={word!r}; give it a dict of its own")
    for parameters in given.values() if patterns else [given]:
        check_scaling({name: value for name, value in parameters.items() if value is not None})


def check_scaling(given: Fields) -> None:
    """Raise ValueError on an unknown type of scaling, and on wrong or contradicting parameters."""
    check_choice(ROPE_TYPES, "rope_type", str(given.get("rope_type", "")))
    for name, value in given.items():
        check_rope_parameter(name, value)
    for small, large in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        if small in given and large in given and given[small] >= given[large]:
            raise ValueError(f"{small}={given[small]} of rope_parameters must be below {large}={given[large]}")


def check_rope_parameter(name: str, value: object) -> None:
    """Raise ValueError on a misspelt rotary parameter, and on a number or dtype out of range."""
    known = {*RopeParameters.__annotations__, "inv_freq_dtype"}
    if name == "inv_freq_dtype":
        check_choice(("float32", "float16", "bfloat16"), "inv_freq_dtype of rope_parameters", value)
    if name not in known and (close := get_close_matches(name, known, n=1, cutoff=0.72)):
        raise ValueError(f"rope_parameters has no {name!r}; did you mean {close[0]!r}?")
    if name in ROPE_NUMBERS:
        low, high = ROPE_NUMBERS[name]
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
        if not (0 < number < inf and low <= number <= high):
            raise ValueError(f"{name}={value!r} of rope_parameters must be finite, above 0 and from {low} to {high}")
